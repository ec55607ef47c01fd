// The plans that plan.auto chooses among: found by the search of `braid plan`, in the part of its
// space that `braid train` executes.
#pragma once

#include <vector>

#include "config/options.h"
#include "cost/efficiency.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"

namespace braid {

// The prices of this runtime: the committed ones and the machine's profile, without the host time
// that was fitted to frameworks whose controllers are written in Python.
Result<Calibration> runtime_calibration(const PlanningProblem& problem);

// The plans that were simulated and fit, the fastest first. The same on every rank: the search is
// limited by work, not by time. kInfeasible where none fits.
Result<std::vector<ExecutionPlan>> executable_plans(const Config& config,
                                                    const PlanningProblem& problem);

}  // namespace braid
