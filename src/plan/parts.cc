#include "plan/parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/divide.h"

namespace braid::inline plan {
namespace {

// The least number of devices that the sizes of all calls divide; beyond `most` any such number.
int64_t unit_of(const CallGroup& group, const CallUnits& units, int64_t most) {
  int64_t unit = 1;
  for (const Call* call : group)
    if (const auto found = units.find(call->name); found != units.end())
      unit = std::min(std::lcm(unit, std::min(found->second, most)), most);
  return unit;
}

// Floating-point operations of a call in one step; generation counts four times, since decoding is
// bound by memory.
double call_work(const PlanningProblem& problem, const Call& call) {
  const double length =
      mean_tokens(problem.workload.prompt) + mean_tokens(problem.workload.response);
  const double tokens = static_cast<double>(call_samples(problem, call)) * length;
  double passes = 1;
  if (call.kind == CallKind::kGenerate) passes = 4;
  if (call.kind == CallKind::kTrainStep)
    passes = 3.0 * static_cast<double>(problem.workload.epochs);
  return passes * tokens * forward_flops_per_token(model_of(problem, call.role).spec, length);
}

constexpr int kPricedRounds = 3;  // of divisions that follow from the prices of the one before

double speed_of(const Cluster& cluster, const DeviceMesh& mesh) {
  const std::vector<int32_t> nodes = nodes_of(cluster);
  double speed = 0;
  for (const DeviceId device : mesh.devices)
    speed += cluster.nodes[nodes[device.value]].gpu.sustained_tflops();
  return speed;
}

class PricedParts {
 public:
  PricedParts(const PlanningProblem& problem, const PartSizing& sizing)
      : problem_(problem), sizing_(sizing) {}

  // The best of the divisions that were tried, from that by work on. Parts that work beside each
  // other end together where devices are in proportion to the work; the sum of parts that work one
  // after the other is least where they are in proportion to its square root. Each with nodes that
  // stay whole, and without.
  Status give(const std::vector<SharedPart>& by_work, CallMeshes* meshes) {
    for (const double slack : {kEstimateSlack, 0.0})
      for (const double power : {1.0, 0.5}) {
        std::vector<SharedPart> parts = by_work;
        for (int round = 0; round <= kPricedRounds; ++round) {
          CallMeshes tried;
          BRAID_TRY(give_parts(problem_, sizing_.units, parts, slack, &tried));
          keep_better(tried);
          set_shares(tried, power, parts);
        }
      }
    for (auto& [call, mesh] : best_) (*meshes)[call] = std::move(mesh);
    return ok_status();
  }

 private:
  void keep_better(const CallMeshes& tried) {
    const double seconds = end_of(tried);
    if (!best_.empty() && !(seconds < least_s_)) return;
    best_ = tried, least_s_ = seconds;
  }

  // When the last of the calls that have meshes ends, if each begins as soon as those that it waits
  // for and its devices are done.
  double end_of(const CallMeshes& meshes) const {
    const auto before = dependencies(problem_.graph);
    std::vector<double> ends(problem_.graph.calls.size(), 0);
    std::vector<double> free(static_cast<size_t>(device_count(problem_.cluster)), 0);
    double last = 0;
    for (size_t c = 0; c < ends.size(); ++c) {
      if (!sizing_.ahead)
        for (const CallId id : before[c]) ends[c] = std::max(ends[c], ends[id.value]);
      const Call& call = problem_.graph.calls[c];
      const auto mesh = meshes.find(call.name);
      if (mesh == meshes.end()) continue;
      for (const DeviceId device : mesh->second.devices)
        ends[c] = std::max(ends[c], free[device.value]);
      ends[c] += sizing_.seconds(call, mesh->second);
      for (const DeviceId device : mesh->second.devices) free[device.value] = ends[c];
      last = std::max(last, ends[c]);
    }
    return last;
  }

  // Of the work that parts would have if their calls took in proportion to their devices. What does
  // not fit asks for more devices.
  void set_shares(const CallMeshes& meshes, double power, std::vector<SharedPart>& parts) const {
    double longest_s = 0;
    std::vector<double> seconds(parts.size(), 0);
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const Call* call : parts[i].calls)
        seconds[i] += sizing_.seconds(*call, meshes.at(call->name));
      if (std::isfinite(seconds[i])) longest_s = std::max(longest_s, seconds[i]);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const double taken_s = std::isfinite(seconds[i]) ? seconds[i] : 2 * std::max(1.0, longest_s);
      const DeviceMesh& mesh = meshes.at(parts[i].calls.front()->name);
      parts[i].share = std::pow(taken_s * speed_of(problem_.cluster, mesh), power);
    }
  }

  const PlanningProblem& problem_;
  const PartSizing& sizing_;
  CallMeshes best_;
  double least_s_ = 0;
};

}  // namespace

Status give_parts(const PlanningProblem& problem, const CallUnits& units,
                  const std::vector<SharedPart>& groups, double slack, CallMeshes* meshes) {
  std::vector<ClusterPart> parts;
  const int64_t most = device_count(problem.cluster) + int64_t{1};
  for (const SharedPart& group : groups)
    parts.push_back({group.share, unit_of(group.calls, units, most)});
  BRAID_ASSIGN(const auto divided, divide_cluster(problem.cluster, parts, slack));
  for (size_t i = 0; i < groups.size(); ++i)
    for (const Call* call : groups[i].calls) (*meshes)[call->name] = divided[i];
  return ok_status();
}

Status give_sized_parts(const PlanningProblem& problem, const PartSizing& sizing,
                        const std::vector<CallGroup>& groups, CallMeshes* meshes) {
  std::vector<SharedPart> parts;
  for (const CallGroup& group : groups) {
    if (group.empty()) continue;
    parts.push_back({group, 0});
    for (const Call* call : group) parts.back().share += call_work(problem, *call);
  }
  if (sizing.seconds) return PricedParts(problem, sizing).give(parts, meshes);
  return give_parts(problem, sizing.units, parts, kEstimateSlack, meshes);
}

}  // namespace braid::inline plan
