// Symmetric Megatron: one layout for every call.
#include "foreign/baselines/baselines.h"
#include "foreign/baselines/layouts.h"

namespace braid::inline foreign {

Result<ExecutionPlan> symmetric_megatron_plan(const PlanningProblem& problem) {
  const DeviceMesh all = whole_cluster(problem.cluster);
  const int node = layouts::node_size(problem, all);
  const int nodes = static_cast<int>(problem.cluster.nodes.size());
  return layouts::assemble(problem, [&](const Call& call) -> Result<CallPlan> {
    CallPlan entry{call.name, all, {}};
    BRAID_ASSIGN(entry.strategy, layouts::fill(problem, call, all, {node, nodes}));
    Strategy& s = entry.strategy;
    if (call.kind == CallKind::kGenerate) return entry;
    const bool trains = call.kind == CallKind::kTrainStep;
    const int64_t wanted = s.pp == 1 ? 1 : (trains ? 2 : 1) * s.pp;
    s.micro_batches = layouts::legal_micro_batches(problem, call, s.dp, wanted);
    s.sequence_parallel = s.tp > 1;
    if (trains) s.recompute = Recompute::kFull;
    return entry;
  });
}

}  // namespace braid::inline foreign
