// What a scoring during a run is told: where the run is, and when to stop waiting.
#pragma once

#include "config/options.h"
#include "reward/reward.h"

namespace braid::inline scoring {

// A scoring that is still out kStopGrace_s after a stop signal ends, so that there is time to
// save before a job scheduler kills; one that begins after the signal has as long from its begin.
inline constexpr double kStopGrace_s = 4;

ScoreContext score_context(const Config& config, int64_t step);

}  // namespace braid::inline scoring
