#include "foreign/baselines/layouts.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/plan_text.h"
#include "plan/validate.h"

namespace braid::inline foreign::layouts {
namespace {

int64_t batch_of(const PlanningProblem& problem, const Call& call) {
  return call.kind == CallKind::kTrainStep ? minibatch_samples(problem)
                                           : call_samples(problem, call);
}

Status infeasible(const std::string& message) { return {Code::kInfeasible, message}; }

}  // namespace

int node_size(const PlanningProblem& problem, const DeviceMesh& mesh) {
  int smallest = kMaxDevicesPerNode;
  for (const DeviceId device : mesh.devices)
    smallest = std::min(smallest, problem.cluster.nodes[node_of(problem.cluster, device)].devices);
  return std::min(smallest, static_cast<int>(mesh.devices.size()));
}

double device_bytes(const PlanningProblem& problem, const DeviceMesh& mesh) {
  double least = HUGE_VAL;
  for (const DeviceId device : mesh.devices)
    least = std::min(least, device_memory_bytes(problem, gpu_of(problem.cluster, device)));
  return least;
}

int legal_tp(const ModelSize& model, int64_t devices, int64_t wanted) {
  int64_t best = 1;
  for (const int64_t tp : divisors(devices)) {
    const bool even = model.mla.has_value() || model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
    if (tp <= wanted && model.heads % tp == 0 && even) best = tp;
  }
  return static_cast<int>(best);
}

int serving_tp(const PlanningProblem& problem, const Call& call, const DeviceMesh& mesh) {
  const ModelSize& size = model_of(problem, call.role).spec;
  const double bytes = 2.0 * static_cast<double>(total_params(size));
  const int node = node_size(problem, mesh);
  const auto devices = static_cast<int64_t>(mesh.devices.size());
  for (int tp = 1; tp < node; tp *= 2)
    if (legal_tp(size, devices, tp) == tp && bytes / tp <= device_bytes(problem, mesh) / 2)
      return tp;
  return legal_tp(size, devices, node);
}

Result<Strategy> fill(const PlanningProblem& problem, const Call& call, const DeviceMesh& mesh,
                      Sizes wanted) {
  const ModelSize& size = model_of(problem, call.role).spec;
  const auto devices = static_cast<int64_t>(mesh.devices.size());
  const int64_t batch = batch_of(problem, call);
  const int64_t tp = legal_tp(size, devices, wanted.tp);
  for (const int64_t pp : divisors(devices / tp)) {
    const int64_t dp = devices / tp / pp;
    const bool batches = call.kind == CallKind::kGenerate ? dp <= batch : batch % dp == 0;
    if (pp < wanted.pp || pp > size.layers || !batches) continue;
    Strategy strategy;
    strategy.tp = static_cast<int>(tp);
    strategy.pp = static_cast<int>(pp);
    strategy.dp = static_cast<int>(dp);
    return strategy;
  }
  return infeasible(cat("call ", call.name, ": no legal sizes with tp ", tp, " on ", devices,
                        " devices for a batch of ", batch,
                        " sequences; make the batch a multiple of a divisor of the devices"));
}

int64_t legal_micro_batches(const PlanningProblem& problem, const Call& call, int dp,
                            int64_t wanted) {
  int64_t best = 1;
  for (const int64_t count : divisors(batch_of(problem, call) / dp))
    if (count <= wanted) best = count;
  return best;
}

int64_t default_micro_tokens(const PlanningProblem& problem) {
  constexpr int64_t kUsualBudget = 16384;  // verl's ppo_max_token_len_per_gpu
  return std::max(kUsualBudget, longest_tokens(problem.workload.prompt) +
                                    longest_tokens(problem.workload.response));
}

Result<ExecutionPlan> assemble(const PlanningProblem& problem, const EntryOf& entry) {
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    BRAID_ASSIGN(CallPlan made, entry(call));
    plan.calls.push_back(std::move(made));
  }
  BRAID_TRY(validate(plan, problem));
  return plan;
}

Result<ExecutionPlan> in_order(const PlanningProblem& problem, const EntryOf& entry) {
  return assemble(problem, [&](const Call& call) -> Result<CallPlan> {
    BRAID_ASSIGN(CallPlan made, entry(call));
    made.strategy.in_order = call.kind != CallKind::kGenerate;
    return made;
  });
}

Result<CallPlan> sharded_entry(const PlanningProblem& problem, const Call& call,
                               const DeviceMesh& mesh) {
  CallPlan entry{call.name, mesh, {}};
  if (call.kind == CallKind::kGenerate) {
    BRAID_ASSIGN(entry.strategy, fill(problem, call, mesh, {serving_tp(problem, call, mesh), 1}));
    return entry;
  }
  const auto devices = static_cast<int64_t>(mesh.devices.size());
  const int64_t batch = batch_of(problem, call);
  if (batch % devices != 0)
    return infeasible(cat("call ", call.name, ": data parallelism over ", devices,
                          " devices does not divide a batch of ", batch,
                          " sequences; use a multiple of ", devices));
  Strategy& strategy = entry.strategy;
  strategy.dp = static_cast<int>(devices);
  strategy.zero_stage = devices > 1 ? 3 : 0;
  strategy.micro_tokens = default_micro_tokens(problem);
  if (call.kind == CallKind::kTrainStep) strategy.recompute = Recompute::kFull;
  return entry;
}

}  // namespace braid::inline foreign::layouts
