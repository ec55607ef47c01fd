// What the evaluator says about any plan, also one outside the search space; the simulator's
// verdict (search/simulate.h) has the same form. Pure; thread-safe but for what CallPricer
// says.
#pragma once

#include "plan/make_problem.h"
#include "search/search.h"

namespace braid::inline search {

// A space whose only choice is this plan: every call with its one option. Errors: those of
// validate(), a mesh that is not a run of consecutive devices, what the cost model refuses.
Result<PlanSpace> space_of_plan(const ExecutionPlan& plan, const PlanningProblem& problem,
                                const CallPricer& pricer);

// Whether a call's plan keeps what a configuration fixes: its mesh and the fields of its strategy.
bool keeps(const CallPlan& entry, const PlanConstraints& constraints);

// The options of a space whose plans keep what a configuration fixes. `constraints` must outlive
// it. Errors: devices that are no run, which a space does not have.
Result<SpaceOptions> keeping(const PlanConstraints& constraints, SpaceOptions options = {});

// The options of a space whose plans `braid train` executes. `problem` must outlive it.
SpaceOptions executed_options(const PlanningProblem& problem);

// The evaluator's verdict on a plan of the space.
Verdict verdict_of(const PlanSpace& space, const Choice& choice);

// On a plan that breaks a rule: it does not fit.
Verdict refused_verdict();

// A judge that asks `judge` about a plan once. Copies share what they know.
Judge remembering(Judge judge);

// A judge that uses the evaluator. Both arguments must outlive it.
Judge evaluator_judge(const PlanningProblem& problem, const CallPricer& pricer);

}  // namespace braid::inline search
