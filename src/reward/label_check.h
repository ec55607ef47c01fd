// Whether a row of data holds the label that a reward compares with, so that a missing one is found
// before a run and not in the step that draws the row. Pure functions.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "config/options.h"

namespace braid::inline reward {

// `extra` is what the reward will get beside prompt and response. Rules that compare with a label
// need one of their type; where on_error lets a run go on (drop, zero), its absence is no error.
Status check_label(const RewardConfig& options, const Json& extra);

}  // namespace braid::inline reward
