// verl's hybrid engine with its defaults.
#include "foreign/baselines/baselines.h"
#include "foreign/baselines/layouts.h"

namespace braid::inline foreign {

Result<ExecutionPlan> verl_hybrid_plan(const PlanningProblem& problem) {
  const DeviceMesh all = whole_cluster(problem.cluster);
  BRAID_ASSIGN(ExecutionPlan plan, layouts::assemble(problem, [&](const Call& call) {
                 return layouts::sharded_entry(problem, call, all);
               }));
  for (const RoleSpec& spec : problem.graph.roles)
    if (!spec.trained) plan.roles.push_back({spec.role, Residency::kHost});
  return plan;
}

}  // namespace braid::inline foreign
