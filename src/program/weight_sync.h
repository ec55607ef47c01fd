// Weights that a generation has in another layout than their training come over when their update
// has ended, beside other updates of the step, and not when the next step begins
// (fusion.sync_beside_training). Pure; thread-safe.
#pragma once

#include <vector>

#include "program/program.h"

namespace braid::inline program {

// The copy that the generation of the program uses. The error names the key and says why nothing
// comes over.
Result<int32_t> copy_to_sync(const Program& program);

// Whether a generation of a plan has another layout of its weights than their training. REQUIRES:
// the plan has all calls of the graph that use a model.
bool generates_elsewhere(const ExecutionPlan& plan, const Graph& graph);

// The last call that trains what the program's synced copy holds: behind it the copy is filled.
// REQUIRES: the program has one.
CallId update_of_synced_copy(const Program& program);

// In which order lists have the calls of the graph: as the graph has them, but this update before
// others that it does not wait for. `waits`: of each call, whom it waits for.
std::vector<CallId> order_of_calls(const Program& program,
                                   const std::vector<std::vector<CallId>>& waits);

}  // namespace braid::inline program
