// Planning problems for tests: PPO and GRPO of catalogue models on equal nodes of eight devices.
#pragma once

#include <string>

#include "config/algorithm_traits.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"

namespace braid::inline plan {

struct TestProblem {
  std::string algorithm = "ppo";
  std::string actor = "llama2-7b", critic = "llama2-7b";
  std::string gpu = "a100-80g";
  int nodes = 1, devices = 8;
  int64_t prompts = 256, samples = 1, minibatches = 4;
  int64_t prompt_tokens = 128, response_tokens = 384;
  bool dynamic_sampling = false;
  bool looks_at_groups = false;  // compute calls say what they look at, with the usual options
};

inline PlanningProblem make_test_problem(const TestProblem& test = {}) {
  PlanningProblem problem;
  AlgorithmOptions options;
  options.name = test.algorithm;
  options.dynamic_sampling = test.dynamic_sampling;
  problem.graph = *make_graph(options);
  if (test.looks_at_groups) note_what_it_looks_at(default_options(test.algorithm), &problem.graph);
  for (Call& call : problem.graph.calls)
    if (call.kind == CallKind::kReward && test.algorithm == "ppo") call.role = RoleId{"reward"};
  if (test.algorithm == "ppo") problem.graph.roles.push_back({RoleId{"reward"}, true, false});
  for (const RoleSpec& spec : problem.graph.roles)
    problem.models[spec.role.value].spec = {
        *find_model(spec.scalar_head ? test.critic : test.actor)};
  problem.workload = {test.prompts, test.samples, test.minibatches, 1, {}, {}};
  problem.workload.prompt.mean = static_cast<double>(test.prompt_tokens);
  problem.workload.response.mean = static_cast<double>(test.response_tokens);
  problem.cluster = *make_cluster(*find_gpu(test.gpu), test.nodes, test.devices);
  return problem;
}

// Every call on all devices with one strategy that differs only in what its kind allows.
inline ExecutionPlan uniform_plan(const PlanningProblem& problem, int dp, int tp, int pp) {
  ExecutionPlan plan;
  plan.graph = problem.graph.name;
  plan.devices = device_count(problem.cluster);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    CallPlan entry{call.name, whole_cluster(problem.cluster), {}};
    entry.strategy.dp = dp;
    entry.strategy.tp = tp;
    entry.strategy.pp = pp;
    plan.calls.push_back(entry);
  }
  return plan;
}

}  // namespace braid::inline plan
