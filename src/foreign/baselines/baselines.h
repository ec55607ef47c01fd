// Plans that other systems would use, as generators without prices: one file each. They follow
// those systems' published rules; whether a plan fits memory is the cost model's question. Pure;
// thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"

namespace braid::inline foreign {

struct Baseline {
  const char* name;         // for --compare and messages
  const char* description;  // one line
  // A plan that validate() accepts, or why the system cannot run the problem.
  Result<ExecutionPlan> (*make)(const PlanningProblem& problem);
};

// In the order in which tables show them.
const std::vector<Baseline>& baselines();

// Every model on every device with ZeRO-3; generation gathers the weights into tensor-parallel
// groups (DeepSpeed-Chat's hybrid engine, arXiv 2308.01320, §4).
Result<ExecutionPlan> deepspeed_chat_plan(const PlanningProblem& problem);
// All calls alike: tp = devices of a node, pp = nodes, dp = 1, what ReaL compares with
// ("heuristic", arXiv 2406.14088, §8).
Result<ExecutionPlan> symmetric_megatron_plan(const PlanningProblem& problem);
// The hand-made PPO plan of ReaL's released code.
Result<ExecutionPlan> real_heuristic_plan(const PlanningProblem& problem);
// Actor and reference on one half, critic and reward on the other, Megatron sizes; generation folds
// the pipeline away (NeMo-Aligner, arXiv 2405.01481, §4).
Result<ExecutionPlan> nemo_aligner_plan(const PlanningProblem& problem);
// One group of devices per model and one of generation engines, ZeRO-3 inside (OpenRLHF, arXiv
// 2405.11143, §3); engines : actor : critic = 1 : 1 : 1 as its documentation recommends.
Result<ExecutionPlan> openrlhf_plan(const PlanningProblem& problem);
// All roles share all devices: fully sharded training, generation engines on the same devices, the
// reference in host memory (verl's defaults, arXiv 2409.19256, §5).
Result<ExecutionPlan> verl_hybrid_plan(const PlanningProblem& problem);

// HybridFlow's auto-mapping needs prices, which the caller gives.
struct HybridFlowPrices {
  // Seconds of one call under a plan; nothing when it cannot run (out of memory).
  std::function<std::optional<double>(const CallPlan&)> call_seconds;
  // Whether a whole plan fits memory.
  std::function<bool(const ExecutionPlan&)> fits;
};
// Every partition of the roles into sets with devices of their own, the best (tp, pp) of each call,
// cost = sum over stages of the slowest set (arXiv 2409.19256, algorithms 1 and 2). Errors:
// kInfeasible when no mapping fits.
Result<ExecutionPlan> hybridflow_plan(const PlanningProblem& problem,
                                      const HybridFlowPrices& prices);

}  // namespace braid::inline foreign
