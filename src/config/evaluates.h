// Whether a run evaluates its policy.
#pragma once

#include "config/options.h"

namespace braid::inline config {

// Whether eval.* asks for evaluations.
inline bool evaluates(const Config& config) {
  return config.eval.every_steps > 0 || config.eval.at_start;
}

}  // namespace braid::inline config
