// ReaL's PPO heuristic: generation over all devices without tensor parallelism, training of actor
// and critic side by side, inference of reward and critic side by side.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "foreign/baselines/baselines.h"
#include "foreign/baselines/layouts.h"

namespace braid::inline foreign {
namespace {

// Contiguous nodes [first, last) as a mesh.
DeviceMesh nodes_of(const Cluster& cluster, int first, int last) {
  DeviceMesh mesh;
  for (const DeviceId device : whole_cluster(cluster).devices) {
    const int node = node_of(cluster, device);
    if (node >= first && node < last) mesh.devices.push_back(device);
  }
  return mesh;
}

struct Halves {
  DeviceMesh left, right;
};

Halves halves_of_node(const Cluster& cluster) {
  const DeviceMesh all = whole_cluster(cluster);
  const auto middle = all.devices.begin() + static_cast<int64_t>(all.devices.size() / 2);
  return {{{all.devices.begin(), middle}}, {{middle, all.devices.end()}}};
}

Halves divide(const PlanningProblem& problem, double left_share) {
  const int nodes = static_cast<int>(problem.cluster.nodes.size());
  if (nodes == 1) return halves_of_node(problem.cluster);
  const int left = std::clamp(static_cast<int>(std::ceil(nodes * left_share)), 1, nodes - 1);
  return {nodes_of(problem.cluster, 0, left), nodes_of(problem.cluster, left, nodes)};
}

double params(const PlanningProblem& problem, const char* role) {
  return static_cast<double>(total_params(model_of(problem, RoleId{role}).spec));
}

DeviceMesh mesh_of(const PlanningProblem& problem, const Call& call) {
  const std::string& role = call.role.value;
  const bool second = role == "critic";
  if (call.kind == CallKind::kTrainStep) {
    const double actor = params(problem, "actor"), critic = params(problem, "critic");
    const Halves train = divide(problem, actor / (actor + critic));
    return second ? train.right : train.left;
  }
  if (role != "critic" && role != "reward") return whole_cluster(problem.cluster);
  const Halves score = divide(problem, 0.5);
  return second ? score.right : score.left;
}

layouts::Sizes sizes_of(const PlanningProblem& problem, const Call& call, const DeviceMesh& mesh) {
  const int nodes = static_cast<int>(problem.cluster.nodes.size());
  const int node = layouts::node_size(problem, whole_cluster(problem.cluster));
  if (call.kind == CallKind::kGenerate) return {1, std::max(2, nodes)};
  constexpr double kLargestForSmallTp = 8e9;
  if (nodes == 1)
    return {params(problem, call.role.value.c_str()) < kLargestForSmallTp ? node / 4 : node / 2, 1};
  return {node / 2, nodes_spanned(problem.cluster, mesh)};
}

}  // namespace

Result<ExecutionPlan> real_heuristic_plan(const PlanningProblem& problem) {
  for (const char* role : {"actor", "critic"})
    if (find_role(problem.graph, RoleId{role}) == nullptr)
      return invalid_input(
          cat("ReaL's heuristic is for PPO; graph ", problem.graph.name, " has no ", role));
  if (device_count(problem.cluster) < 4)
    return invalid_input("ReaL's heuristic divides a node of at least 4 devices");
  return layouts::assemble(problem, [&](const Call& call) -> Result<CallPlan> {
    CallPlan entry{call.name, mesh_of(problem, call), {}};
    BRAID_ASSIGN(entry.strategy,
                 layouts::fill(problem, call, entry.mesh, sizes_of(problem, call, entry.mesh)));
    Strategy& s = entry.strategy;
    if (call.kind == CallKind::kGenerate) return entry;
    const bool trains = call.kind == CallKind::kTrainStep;
    const int64_t wanted = s.pp == 1 ? 1 : (trains ? 2 : 1) * s.pp;
    s.micro_batches = layouts::legal_micro_batches(problem, call, s.dp, wanted);
    s.sequence_parallel = trains && s.tp > 1;
    if (trains) {
      s.recompute = Recompute::kFull;
      s.zero_stage = s.dp > 1 ? 1 : 0;
    }
    return entry;
  });
}

}  // namespace braid::inline foreign
