// NeMo-Aligner: two jobs, the actor's with the reference and the critic's with the reward model.
#include "foreign/baselines/baselines.h"
#include "foreign/baselines/layouts.h"
#include "plan/placement.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

// The smallest pipeline that lets 16-bit weights and gradients and the sharded Adam state take at
// most 60 % of a device (Megatron's distributed optimizer).
int training_pp(const PlanningProblem& problem, const Call& call, const DeviceMesh& mesh, int tp) {
  const double params = static_cast<double>(total_params(model_of(problem, call.role).spec));
  const auto devices = static_cast<int64_t>(mesh.devices.size());
  const double limit = 0.6 * layouts::device_bytes(problem, mesh);
  for (const int64_t pp : divisors(devices / tp)) {
    const double dp = static_cast<double>(devices) / static_cast<double>(tp * pp);
    if (params * (6 + 12 / dp) / static_cast<double>(tp * pp) <= limit) return static_cast<int>(pp);
  }
  return static_cast<int>(devices / tp);
}

Result<Strategy> strategy_of(const PlanningProblem& problem, const Call& call,
                             const DeviceMesh& mesh) {
  if (call.kind == CallKind::kGenerate)
    return layouts::fill(problem, call, mesh, {layouts::serving_tp(problem, call, mesh), 1});
  const int node = layouts::node_size(problem, mesh);
  const int tp = layouts::legal_tp(model_of(problem, call.role).spec,
                                   static_cast<int64_t>(mesh.devices.size()), node);
  BRAID_ASSIGN(Strategy s,
               layouts::fill(problem, call, mesh, {tp, training_pp(problem, call, mesh, tp)}));
  s.sequence_parallel = s.tp > 1;
  s.micro_batches = layouts::legal_micro_batches(problem, call, s.dp, 4 * int64_t{s.pp});
  if (call.kind == CallKind::kTrainStep) {
    s.recompute = Recompute::kSelective;
    s.zero_stage = s.dp > 1 ? 1 : 0;
  }
  return s;
}

}  // namespace

Result<ExecutionPlan> nemo_aligner_plan(const PlanningProblem& problem) {
  // Jobs have whole nodes; of a single one each has half.
  const std::vector<Node>& nodes = problem.cluster.nodes;
  const int node = nodes.front().devices;
  CallUnits units;
  for (const Call& call : problem.graph.calls)
    if (uses_model(call)) units[call.name] = nodes.size() > 1 ? node : std::max(1, node / 2);
  BRAID_ASSIGN(const CallMeshes meshes, placement_meshes("split", problem, {units}));
  return layouts::in_order(problem, [&](const Call& call) -> Result<CallPlan> {
    CallPlan entry{call.name, meshes.at(call.name), {}};
    BRAID_ASSIGN(entry.strategy, strategy_of(problem, call, entry.mesh));
    return entry;
  });
}

}  // namespace braid::inline foreign
