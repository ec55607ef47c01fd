// What a session does before its first step to know whether the largest one fits.
#pragma once

#include "passes/call_work.h"
#include "session/step_context.h"

namespace braid::inline session {

// On all ranks together: where memory is limited and train.rehearse says so, runs what takes most
// of it once (passes/rehearsal.h). kInfeasible where that does not fit on some rank, with bytes by
// owner and the keys that would help.
Status rehearse_step(const StepContext& step, NeedsOfCalls& needs);

}  // namespace braid::inline session
