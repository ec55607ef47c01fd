// Rules that every execution plan obeys, and the plan that always exists. Pure; thread-safe.
#pragma once

#include "base/status.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"

namespace braid::inline plan {

// The first rule that the plan breaks: the error names the call or role, the rule and the nearest
// legal value. Memory is not judged here but by the cost model.
Status validate(const ExecutionPlan& plan, const PlanningProblem& problem);

// Everything on the first device, without parallelism.
ExecutionPlan trivial_plan(const PlanningProblem& problem);

// An empty plan with the names that tie it to the problem, and a role plan for no role.
ExecutionPlan plan_for(const PlanningProblem& problem);

// The plan's entry of a call or role. A role without an entry stays on its devices. REQUIRES for
// call_plan: the plan has the call.
const CallPlan& call_plan(const ExecutionPlan& plan, const std::string& call);
RolePlan role_plan(const ExecutionPlan& plan, const RoleId& role);

// Divisors of n in ascending order.
std::vector<int64_t> divisors(int64_t n);
// The divisors of n, from `least` on, on both sides of a number that is none ("2 and 4"), for
// messages.
std::string nearest_divisors(int64_t n, int64_t wanted, int64_t least = 1);

}  // namespace braid::inline plan
