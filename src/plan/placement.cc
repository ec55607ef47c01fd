#include "plan/placement.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

// Whole units in proportion to shares, by the largest remainder; at least one each.
std::vector<int> proportional(int units, const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int> counts(shares.size(), 1);
  for (int left = units - static_cast<int>(shares.size()); left > 0; --left) {
    size_t neediest = 0;
    double largest = -1;
    for (size_t i = 0; i < shares.size(); ++i) {
      const double lack = shares[i] / sum * units - counts[i];
      if (lack > largest) largest = lack, neediest = i;
    }
    ++counts[neediest];
  }
  return counts;
}

// Powers of two in proportion to shares: the part with the largest share per unit is doubled while
// the units last.
std::vector<int> powers_of_two(int units, const std::vector<double>& shares) {
  std::vector<int> counts(shares.size(), 1);
  int used = static_cast<int>(shares.size());
  while (true) {
    int chosen = -1;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (used + counts[i] > units) continue;
      if (chosen < 0 || shares[i] / counts[i] > shares[chosen] / counts[chosen])
        chosen = static_cast<int>(i);
    }
    if (chosen < 0) return counts;
    used += counts[chosen];
    counts[chosen] *= 2;
  }
}

std::vector<DeviceMesh> by_nodes(const Cluster& cluster, const std::vector<int>& counts) {
  std::vector<DeviceMesh> meshes(counts.size());
  int32_t device = 0;
  size_t node = 0;
  for (size_t part = 0; part < counts.size(); ++part)
    for (int i = 0; i < counts[part]; ++i, ++node)
      for (int j = 0; j < cluster.nodes[node].devices; ++j)
        meshes[part].devices.push_back(DeviceId{device++});
  return meshes;
}

// Larger parts first, so that powers of two stay aligned to nodes.
std::vector<DeviceMesh> by_devices(const std::vector<int>& counts) {
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return counts[a] > counts[b]; });
  std::vector<DeviceMesh> meshes(counts.size());
  int32_t device = 0;
  for (const size_t part : order)
    for (int i = 0; i < counts[part]; ++i) meshes[part].devices.push_back(DeviceId{device++});
  return meshes;
}

double role_work(const PlanningProblem& problem, const std::vector<std::string>& roles) {
  double work = 0;
  for (const Call& call : problem.graph.calls)
    if (std::find(roles.begin(), roles.end(), call.role.value) != roles.end())
      work += call_work(problem, call);
  return work;
}

CallMeshes everywhere(const PlanningProblem& problem) {
  CallMeshes meshes;
  for (const Call& call : problem.graph.calls)
    if (uses_model(call)) meshes[call.name] = whole_cluster(problem.cluster);
  return meshes;
}

// Gives each group of roles its part of the cluster.
Result<CallMeshes> divide_roles(const PlanningProblem& problem,
                                const std::vector<std::vector<std::string>>& groups) {
  std::vector<std::vector<std::string>> present;
  std::vector<double> shares;
  for (const auto& group : groups)
    if (const double work = role_work(problem, group); work > 0) {
      present.push_back(group);
      shares.push_back(work);
    }
  BRAID_ASSIGN(const auto parts, divide_cluster(problem.cluster, shares));
  CallMeshes meshes = everywhere(problem);
  for (const Call& call : problem.graph.calls)
    for (size_t i = 0; i < present.size(); ++i)
      if (std::find(present[i].begin(), present[i].end(), call.role.value) != present[i].end())
        meshes[call.name] = parts[i];
  return meshes;
}

Result<CallMeshes> interleaved(const PlanningProblem& problem) {
  std::vector<std::vector<std::string>> frozen;
  for (const RoleSpec& spec : problem.graph.roles)
    if (!spec.trained) frozen.push_back({spec.role.value});
  if (frozen.size() < 2)
    return invalid_input(
        cat("interleaved places models that are only read on disjoint devices, "
            "and graph ",
            problem.graph.name, " has ", frozen.size(), "; use colocated"));
  return divide_roles(problem, frozen);
}

Result<CallMeshes> disaggregated(const PlanningProblem& problem) {
  double generate = 0, other = 0;
  for (const Call& call : problem.graph.calls)
    (call.kind == CallKind::kGenerate ? generate : other) +=
        uses_model(call) ? call_work(problem, call) : 0;
  if (generate == 0)
    return invalid_input(
        cat("disaggregated separates generation, and graph ", problem.graph.name, " has none"));
  BRAID_ASSIGN(const auto parts, divide_cluster(problem.cluster, {other, generate}));
  CallMeshes meshes;
  for (const Call& call : problem.graph.calls)
    if (uses_model(call)) meshes[call.name] = parts[call.kind == CallKind::kGenerate ? 1 : 0];
  return meshes;
}

Result<CallMeshes> standalone(const PlanningProblem& problem) {
  std::vector<std::vector<std::string>> groups;
  for (const RoleSpec& spec : problem.graph.roles) groups.push_back({spec.role.value});
  return divide_roles(problem, groups);
}

Result<CallMeshes> split_in_two(const PlanningProblem& problem) {
  return divide_roles(problem, {{"actor", "reference"}, {"critic", "reward"}});
}

Result<CallMeshes> colocated(const PlanningProblem& problem) { return everywhere(problem); }

struct NamedPlacement {
  const char* name;
  Result<CallMeshes> (*make)(const PlanningProblem&);
};
constexpr NamedPlacement kPlacements[] = {{"colocated", colocated},
                                          {"interleaved", interleaved},
                                          {"disaggregated", disaggregated},
                                          {"split", split_in_two},
                                          {"standalone", standalone}};

}  // namespace

double call_work(const PlanningProblem& problem, const Call& call) {
  const double length =
      mean_tokens(problem.workload.prompt) + mean_tokens(problem.workload.response);
  const double tokens = static_cast<double>(call_samples(problem, call)) * length;
  double passes = 1;
  if (call.kind == CallKind::kGenerate) passes = 4;
  if (call.kind == CallKind::kTrainStep)
    passes = 3.0 * static_cast<double>(problem.workload.epochs);
  return passes * tokens * forward_flops_per_token(model_of(problem, call.role).size, length);
}

Result<std::vector<DeviceMesh>> divide_cluster(const Cluster& cluster,
                                               const std::vector<double>& shares) {
  const int devices = device_count(cluster), parts = static_cast<int>(shares.size());
  if (parts == 0) return std::vector<DeviceMesh>();
  if (parts > devices)
    return invalid_input(
        cat(parts, " disjoint parts need at least ", parts, " devices, the cluster has ", devices,
            devices == 1 ? "; for two processes of this machine write cluster={gpu: this-machine, "
                           "nodes: 1, gpus_per_node: 2}"
                         : ""));
  const int nodes = static_cast<int>(cluster.nodes.size());
  if (nodes >= parts) return by_nodes(cluster, proportional(nodes, shares));
  return by_devices(powers_of_two(devices, shares));
}

const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const NamedPlacement& entry : kPlacements) out.push_back(entry.name);
    return out;
  }();
  return names;
}

Result<CallMeshes> placement_meshes(const std::string& name, const PlanningProblem& problem) {
  for (const NamedPlacement& entry : kPlacements)
    if (name == entry.name) return entry.make(problem);
  return invalid_input(cat("'", name, "' is no placement", did_you_mean(name, placement_names()),
                           "; known: auto, ", join(placement_names(), ", "),
                           ", or a map of roles to devices"));
}

Result<CallMeshes> read_placement(const YamlNode& node, const PlanningProblem& problem) {
  const std::string where = cat(node.origin, ": placement");
  if (node.kind == YamlNode::Kind::kNull) return CallMeshes();
  if (node.kind == YamlNode::Kind::kScalar) {
    if (node.scalar == "auto") return CallMeshes();
    return placement_meshes(node.scalar, problem).at(where);
  }
  if (node.kind != YamlNode::Kind::kMap)
    return invalid_input(cat(where, " must be a name or a map of roles to devices"));
  CallMeshes by_role, by_call;
  for (const auto& [name, value] : node.map) {
    const Call* call = find_call(problem.graph, name);
    const bool role = find_role(problem.graph, RoleId{name}) != nullptr;
    const bool is_call = call != nullptr && uses_model(*call);
    if (!role && !is_call)
      return invalid_input(cat(value.origin, ": placement.", name, ": graph ", problem.graph.name,
                               " has no such role, and no call of this name with a model"));
    BRAID_ASSIGN(const DeviceMesh mesh,
                 read_mesh(value, cat("placement.", name), &problem.cluster));
    BRAID_TRY(validate_mesh(problem.cluster, mesh).at(cat(value.origin, ": placement.", name)));
    (is_call && !role ? by_call : by_role)[name] = mesh;
  }
  for (const Call& call : problem.graph.calls)
    if (const auto found = by_role.find(call.role.value); found != by_role.end())
      by_call.emplace(call.name, found->second);
  return by_call;
}

}  // namespace braid::inline plan
