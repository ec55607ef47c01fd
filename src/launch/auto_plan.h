// The plans that plan.auto chooses among: found by the search of `braid plan`, in the part of its
// space that `braid train` executes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "config/options.h"
#include "plan/execution_plan.h"
#include "plan/make_problem.h"
#include "plan/problem.h"
#include "pricing/efficiency.h"

namespace braid::inline launch {

// What a configuration that searches says besides, when it is given a plan: a plan has its own
// staleness.
inline constexpr const char* kKeysOfStatedPlan = "plan.auto=false plan.staleness=0";

// The prices of this runtime (pricing/own_engine.h): the committed ones and the machine's profile.
Result<Calibration> runtime_calibration(const PlanningProblem& problem);

// What plans have to keep of a configuration: the parts of a placement that has a name are sized by
// these prices. Errors: those of plan_constraints().
Result<PlanConstraints> executable_constraints(const Config& config, const PlanningProblem& problem,
                                               const Calibration& calibration);

struct ExecutableSearch {
  int64_t units = 32;                            // of work: seconds
  int threads = 0;                               // 0: one for each core
  const PlanConstraints* constraints = nullptr;  // that plans keep, if given
  int64_t staleness = 0;                         // that the fastest may have
  bool synchronous = true;                       // false: only plans with that staleness
  std::function<bool()> stop = {};               // asked now and then; true: with what there is
};

// The plans that were simulated and fit, the fastest first (search/whole.h): before all others
// those with fusions that save 1 % of a step or more, which the log names. The same on every rank:
// the search is limited by work, not by time. One whose rollouts are made ahead of training is the
// first of them where it may have that and is faster; the log says which. kInfeasible where none
// fits. Errors: devices of the constraints that are no run.
Result<std::vector<ExecutionPlan>> executable_plans(const PlanningProblem& problem,
                                                    const Calibration& calibration,
                                                    const ExecutableSearch& search = {});

}  // namespace braid::inline launch
