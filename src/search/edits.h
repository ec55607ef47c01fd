// Edits of an execution plan that a person could make in its file: one field of a call or of a role
// takes another value, the rest stays, and the plan is still legal (plan/validate.h). They leave
// alone what a step computes: precision, staleness and fusion. Pure; thread-safe.
#pragma once

#include <vector>

#include "base/rng.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"
#include "search/strategies.h"

namespace braid::inline search {

// All legal edits of a single field but the order of passes: every value of fields with few of
// them; of numbers the divisors of what they divide, powers of two, and the neighbours of the value
// that is there. Of cp, ep and expert_tp what `axes` has; cp doubles or halves where dp, tp or pp
// halves or doubles.
std::vector<ExecutionPlan> single_edits(const ExecutionPlan& plan, const PlanningProblem& problem,
                                        const FurtherAxes& axes = {});

// A legal plan that differs from `plan` in one field or a few: as above, orders of passes, sizes
// that are exchanged (dp for tp, ...), meshes, and residency. The plan itself where no try of many
// is legal.
ExecutionPlan random_edit(const ExecutionPlan& plan, const PlanningProblem& problem,
                          RandomStream& random);

}  // namespace braid::inline search
