// Bytes per number of what training and generation keep, read and send, by the precision in which a
// model computes: the one place where a precision becomes widths. Pure; thread-safe.
#pragma once

#include <algorithm>

#include "cluster/gpu.h"

namespace braid::inline pricing {

// State of Adam in 32 bit per parameter: two moments, and beside them a master copy of weights that
// computation has in fewer bits.
inline constexpr double kMoments = 8;
inline constexpr double kMasterAndMoments = 12;
// Gradient, weight, master weight and two moments that an Adam step reads or writes, in 16 bit with
// a master copy; in 32 bit without one they are as many bytes.
inline constexpr double kAdamTraffic = 28;

struct NumberWidths {
  double weight = 2;      // as stored for passes
  double gathered = 2;    // as ZeRO gathers it: narrow products cast from 16 bit
  double activation = 2;  // kept, and sent between stages and tensor-parallel ranks
  double cache = 2;       // of keys and values
  double reduced = 4;     // of a gradient in the reduction
  double optimizer = kMasterAndMoments;
  double least_gradient = 0;  // of a kept gradient; 32-bit weights have 32-bit gradients
  // A logit and its gradient beyond those of 16 bit.
  double extra_logit = 0;
  friend bool operator==(const NumberWidths&, const NumberWidths&) = default;
};

inline NumberWidths widths_of(Precision precision) {
  NumberWidths widths;
  widths.weight = widths.cache = precision_bytes(precision);
  widths.gathered = widths.activation = std::max(2.0, precision_bytes(precision));
  if (precision == Precision::kF32) {
    widths.optimizer = kMoments;
    widths.least_gradient = 4;
    widths.extra_logit = 4;
  }
  return widths;
}

}  // namespace braid::inline pricing
