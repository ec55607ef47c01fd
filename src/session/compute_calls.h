// The calls that compute an algorithm's functions over samples. Not thread-safe.
#pragma once

#include "session/step_context.h"

namespace braid::inline session {

// On the rows that this rank computes; of each group one rank has the metrics.
Status compute(const StepContext& step, const Call& call);

}  // namespace braid::inline session
