// What the baseline generators share: legal sizes near the wanted ones. Internal to baselines/.
#pragma once

#include <functional>
#include <string>

#include "plan/execution_plan.h"
#include "plan/problem.h"

namespace braid::inline foreign::layouts {

// Devices of the smallest node that a mesh touches.
int node_size(const PlanningProblem& problem, const DeviceMesh& mesh);
// The least memory of a device of the mesh, or the problem's limit.
double device_bytes(const PlanningProblem& problem, const DeviceMesh& mesh);

// The largest legal tp up to `wanted` on a mesh: divides the heads and the devices, and key-value
// heads divide evenly.
int legal_tp(const ModelSize& model, int64_t devices, int64_t wanted);

// The smallest tp at which 16-bit weights take at most half of a device, at most a node.
int serving_tp(const PlanningProblem& problem, const Call& call, const DeviceMesh& mesh);

// tp and at least pp as wanted, dp what is left; pp grows until dp divides the batch. Errors:
// kInfeasible, naming call and batch.
struct Sizes {
  int tp = 1;
  int pp = 1;
};
Result<Strategy> fill(const PlanningProblem& problem, const Call& call, const DeviceMesh& mesh,
                      Sizes wanted);

// The largest legal number of micro-batches up to `wanted`.
int64_t legal_micro_batches(const PlanningProblem& problem, const Call& call, int dp,
                            int64_t wanted);

// Token budget of a micro-batch that training systems use by default: a few sequences, at least
// one of the longest.
int64_t default_micro_tokens(const PlanningProblem& problem);

// A plan whose entry of each call with a model is what `entry` returns; validated.
using EntryOf = std::function<Result<CallPlan>(const Call&)>;
Result<ExecutionPlan> assemble(const PlanningProblem& problem, const EntryOf& entry);
// The same for a system that cuts a batch by number of sequences and does not balance tokens.
Result<ExecutionPlan> in_order(const PlanningProblem& problem, const EntryOf& entry);

// Data parallel over the whole mesh with everything sharded (ZeRO-3, FSDP): training with full
// recomputation, inference with gathered layers, generation in serving_tp() groups.
Result<CallPlan> sharded_entry(const PlanningProblem& problem, const Call& call,
                               const DeviceMesh& mesh);

}  // namespace braid::inline foreign::layouts
