// Several steps of a plan in a row, where generation may run ahead of learning: with a staleness of
// s, rollouts of step i are sampled by the weights after step i - s - 1, so they may be made while
// earlier steps are still being learned. The steps are unrolled into one graph, compiled and
// simulated like any other; what overlaps is what the lists and the devices allow. Pure;
// thread-safe.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "plan/execution_plan.h"
#include "sim/simulate.h"

namespace braid::inline sim {

struct OverlapOptions {
  int steps = 6;  // simulated; at least 2 staleness + 2
  SimOptions simulation;
  // In place of simulation.idle_calls: what each step leaves out, by name in one step; steps behind
  // the last entry leave out nothing.
  std::vector<std::set<std::string>> idle_calls = {};
};

struct OverlapResult {
  double step_s = 0;   // between the ends of consecutive steps, without the first and last ones
  double first_s = 0;  // the first step alone
  Trace trace;         // of all steps; calls of step i end in "@i"
};

// The steps of `problem` as one graph: rollouts of step i + staleness come before learning on step
// i. Rollouts are the calls that generate, what those read from, and calls without a model that
// need nothing else. REQUIRES: steps >= 1, staleness >= 0.
PlanningProblem overlapped_problem(const PlanningProblem& problem, int steps, int64_t staleness);
// The plan with an entry for every call of those steps.
ExecutionPlan overlapped_plan(const ExecutionPlan& plan, int steps);

// Simulates the plan with its own staleness. All steps have the lengths of the first. Errors: those
// of compile() and simulate(), too few steps, a graph that does not generate with a staleness.
Result<OverlapResult> simulate_steps(const ExecutionPlan& plan, const PlanningProblem& problem,
                                     const Calibration& calibration, const OverlapOptions& options);

}  // namespace braid::inline sim
