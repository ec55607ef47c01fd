// OpenRLHF: models apart, generation engines apart from them.
#include <map>

#include "foreign/baselines/baselines.h"
#include "foreign/baselines/layouts.h"
#include "plan/divide.h"

namespace braid::inline foreign {

Result<ExecutionPlan> openrlhf_plan(const PlanningProblem& problem) {
  const std::string engines = "engines";
  std::map<std::string, double> shares;
  for (const RoleSpec& spec : problem.graph.roles) shares[spec.role.value] = spec.trained ? 1 : 0.5;
  if (generates(problem.graph)) shares[engines] = 1;
  std::vector<ClusterPart> list;
  for (const auto& [group, share] : shares) list.push_back({share, 1});
  BRAID_ASSIGN(const auto parts, divide_cluster(problem.cluster, list));
  std::map<std::string, DeviceMesh> meshes;
  for (const auto& [group, share] : shares) {
    const size_t index = meshes.size();
    meshes[group] = parts[index];
  }
  return layouts::in_order(problem, [&](const Call& call) -> Result<CallPlan> {
    const bool samples = call.kind == CallKind::kGenerate;
    return layouts::sharded_entry(problem, call, meshes.at(samples ? engines : call.role.value));
  });
}

}  // namespace braid::inline foreign
