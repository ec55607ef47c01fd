// What of a plan `braid train` executes: it refuses the rest by name, plan.auto chooses among what
// is left, and `braid plan` says of a plan which it is. Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "dataflow/graph.h"
#include "plan/execution_plan.h"

namespace braid::inline plan {

// One call. Errors name the call and the field.
Status check_executable(const Call& call, const Strategy& strategy);

// A whole plan: its calls, fusion and staleness. REQUIRES: validate() accepted it
// for the graph.
Status check_executable(const ExecutionPlan& plan, const Graph& graph);

}  // namespace braid::inline plan
