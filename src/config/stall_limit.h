// For how long a rank of a job may be without progress before it counts as stuck (runtime.stall_s),
// and for how long one may wait for others (runtime.wait_s). Pure.
#pragma once

#include "base/status.h"
#include "config/options.h"

namespace braid::inline config {

// Seconds: runtime.stall_s, or where that is 0 the largest of 300, ten times the longest step so
// far, and twice the longest time that a reward may take for one answer, during which a rank has
// nothing else to do.
double stall_limit_s(const Config& config, double longest_step_s);

// Seconds: runtime.wait_s, or where that is 0 the larger of 3600 and twice the longest time that a
// reward may take for one answer. A rank that dies or hangs is found by its signs of life before.
double wait_limit_s(const Config& config);

// A stated limit that a reward may outlast within its own (timeout_s, outage_s) is an error.
Status check_stall_limit(const Config& config);

}  // namespace braid::inline config
