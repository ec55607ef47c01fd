// DeepSpeed-Chat: flattening with ZeRO-3.
#include "foreign/baselines/baselines.h"
#include "foreign/baselines/layouts.h"

namespace braid::inline foreign {

Result<ExecutionPlan> deepspeed_chat_plan(const PlanningProblem& problem) {
  const DeviceMesh all = whole_cluster(problem.cluster);
  return layouts::in_order(problem, [&](const Call& call) -> Result<CallPlan> {
    return layouts::sharded_entry(problem, call, all);
  });
}

}  // namespace braid::inline foreign
