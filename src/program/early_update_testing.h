// What the tests of updates that begin early have in common, in each room that compiles, executes,
// prices or emulates them. Only tests include this. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/contains.h"
#include "plan/test_problem.h"
#include "plan/validate.h"

namespace braid::inline program {

// Devices of one or more nodes, and samples whose scoring takes about as long as what is learned
// from them.
inline PlanningProblem scored_beside(int64_t prompts, int64_t minibatches, int devices = 4) {
  return make_test_problem({.algorithm = "grpo",
                            .actor = "qwen2.5-0.5b",
                            .gpu = "b200",
                            .nodes = (devices + 7) / 8,
                            .devices = std::min(devices, 8),
                            .prompts = prompts,
                            .samples = 4,
                            .minibatches = minibatches,
                            .prompt_tokens = 512,
                            .response_tokens = 512,
                            .looks_at_groups = true});
}

// These calls on the first half of the devices, all else on the other; the update begins when so
// many mini-batches are scored, or waits for all (0).
inline ExecutionPlan in_halves(const PlanningProblem& problem,
                               const std::vector<std::string>& first_half, int64_t beside) {
  const int half = device_count(problem.cluster) / 2;
  ExecutionPlan plan = uniform_plan(problem, half, 1, 1);
  for (CallPlan& call : plan.calls)
    call.mesh = *contiguous_mesh(problem.cluster, contains(first_half, call.call) ? 0 : half, half);
  plan.fusion.train_beside_scoring = beside;
  return plan;
}

}  // namespace braid::inline program
