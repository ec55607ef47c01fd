// For how long a rank of a job may be without progress before it counts as stuck (runtime.stall_s).
// Pure.
#pragma once

#include "base/status.h"
#include "config/options.h"

namespace braid::inline config {

// Seconds: runtime.stall_s, or where that is 0 the largest of 300, ten times the longest step so
// far, and twice the longest time that a reward may take for one answer, during which a rank has
// nothing else to do.
double stall_limit_s(const Config& config, double longest_step_s);

// A stated limit that a reward may outlast within its own (timeout_s, outage_s) is an error.
Status check_stall_limit(const Config& config);

}  // namespace braid::inline config
