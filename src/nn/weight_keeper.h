// What makes the weights of a model whole while they are used and lets them go afterwards (ZeRO-3,
// Rajbhandari et al., 2020, §5.3): a decoder asks for its units one after another. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nn/index_range.h"

namespace braid::inline nn {

class WeightKeeper {
 public:
  virtual ~WeightKeeper() = default;
  // From here to leave() the tensors of a unit (Decoder::unit_of()) have their values; nothing
  // where they have. A failure of communication leaves as CommunicationFailure.
  virtual void bring(int64_t unit) = 0;
  // The unit is brought next: its values may come beside what is computed until then. Nothing where
  // they are there or on their way. All ranks say so at the same place.
  virtual void expect(int64_t unit) = 0;
  // Nothing where they have none and none are on their way.
  virtual void leave(int64_t unit) = 0;
  // For who writes all of a unit's values: memory without values, until close() takes over what is
  // to be kept of them and lets the rest go. All ranks write the same.
  virtual void open(int64_t unit) = 0;
  virtual void close(int64_t unit) = 0;
  // What close() takes over of a tensor of this name, in the order of its numbers: the others need
  // no values. Nothing: all of it.
  virtual std::optional<IndexRange> kept(const std::string& /*name*/) const { return {}; }
};

}  // namespace braid::inline nn
