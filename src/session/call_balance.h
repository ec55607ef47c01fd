// How evenly the samples of a call were partitioned over its data-parallel ranks: a metric.
#pragma once

#include "samples/call_rows.h"
#include "session/step_context.h"

namespace braid::inline session {

// perf/imbalance_CALL, which the first rank of a call with several data-parallel ranks notes: of a
// generation once all are told how long its responses are, else when the call ends. REQUIRES: the
// rows are those that the call has worked on, all in one part.
void note_balance(const StepContext& step, const Call& call, CallRows& rows,
                  const SampleStore& store);

}  // namespace braid::inline session
