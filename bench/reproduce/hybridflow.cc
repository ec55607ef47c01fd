#include "hybridflow.h"

#include <algorithm>

#include "base/text.h"
#include "plan/validate.h"
#include "program/reallocation.h"
#include "sim/simulate.h"

namespace braid::reproduce {
namespace {

constexpr double kBytesPerParameter = 2;
constexpr double kNodeGbps = 200;  // between machines, as the paper states it

bool is_inference(const std::string& role) { return role == "reference" || role == "reward"; }

// All ways to give `units` to `parts` sets, at least one each.
std::vector<std::vector<int>> divisions(int units, size_t parts) {
  if (parts == 1) return {{units}};
  std::vector<std::vector<int>> out;
  for (int first = 1; first <= units - static_cast<int>(parts) + 1; ++first)
    for (std::vector<int>& rest : divisions(units - first, parts - 1)) {
      rest.insert(rest.begin(), first);
      out.push_back(std::move(rest));
    }
  return out;
}

// Sets of inference models alone are alike and get at most what each of the others gets.
bool worth_pricing(const Placement& placement, const std::vector<int>& counts) {
  int smallest_trained = counts.front(), inference = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    if (!is_inference(placement.sets[i].front()))
      smallest_trained = std::min(smallest_trained, counts[i]);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (!is_inference(placement.sets[i].front())) continue;
    if (inference != 0 && counts[i] != inference) return false;
    inference = counts[i];
  }
  return inference <= smallest_trained;
}

// Devices of the smallest part: nodes, two of them on large clusters, parts of nodes on small ones.
int unit_devices(const Cluster& cluster, size_t sets) {
  const int devices = device_count(cluster), node = cluster.nodes.front().devices;
  constexpr int kMostUnits = 8;
  if (sets == 1) return devices;
  if (devices < 4 * node) return std::max(1, devices / 4);
  return devices / node > kMostUnits ? 2 * node : node;
}

std::string allocation_text(const Placement& placement, const RoleMeshes& meshes) {
  std::vector<std::string> counts;
  for (const auto& set : placement.sets)
    counts.push_back(cat(meshes.at(set.front()).devices.size()));
  return join(counts, " + ");
}

Strategy train_strategy(const Transition& transition) {
  Strategy s;
  s.tp = transition.tp, s.pp = transition.pp, s.dp = transition.dp;
  s.sequence_parallel = s.tp > 1;
  return s;
}

Strategy generate_strategy(const Transition& transition) {
  Strategy s;
  s.tp = transition.gen_tp;
  s.dp = transition.tp * transition.pp * transition.dp / s.tp;
  return s;
}

// The devices of generation in mesh order: replica by replica, tensor-parallel ranks together.
DeviceMesh generate_mesh(const Transition& transition, const Cluster& cluster) {
  const DeviceMesh all = whole_cluster(cluster);
  if (!transition.strided) return all;
  const Strategy train = train_strategy(transition);
  const int apart = transition.tp / transition.gen_tp;
  DeviceMesh mesh;
  for (int dp = 0; dp < train.dp; ++dp)
    for (int stage = 0; stage < train.pp; ++stage)
      for (int offset = 0; offset < apart; ++offset)
        for (int rank = 0; rank < transition.gen_tp; ++rank)
          mesh.devices.push_back(
              all.devices[mesh_index(train, {dp, rank * apart + offset, stage})]);
  return mesh;
}

ExecutionPlan transition_plan(const PlanningProblem& problem, const Transition& transition) {
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    CallPlan entry{call.name, whole_cluster(problem.cluster), train_strategy(transition)};
    if (call.kind == CallKind::kGenerate) {
      entry.strategy = generate_strategy(transition);
      entry.mesh = generate_mesh(transition, problem.cluster);
    }
    if (call.kind == CallKind::kInfer || call.kind == CallKind::kReward)
      entry.strategy.micro_batches = 8;
    if (call.kind == CallKind::kTrainStep) {
      entry.strategy.micro_batches = 8 * transition.pp;
      entry.strategy.zero_stage = transition.dp > 1 ? 1 : 0;
      entry.strategy.recompute = Recompute::kFull;
    }
    plan.calls.push_back(std::move(entry));
  }
  return plan;
}

}  // namespace

Experiment hybridflow_experiment(const std::string& actor, const std::string& critic, int gpus) {
  Experiment experiment;
  experiment.actor = actor;
  experiment.critic = critic;
  experiment.nodes = gpus / experiment.devices_per_node;
  experiment.nic_gbps_per_gpu = kNodeGbps / experiment.devices_per_node;
  experiment.prompts = 1024;
  experiment.minibatches = 8;
  experiment.prompt_tokens = 1024;
  experiment.response = fixed_length(1024);
  return experiment;
}

const std::vector<Placement>& hybridflow_placements() {
  static const std::vector<Placement> placements = {
      {"colocate", {{"actor", "critic", "reference", "reward"}}},
      {"split", {{"actor", "reference"}, {"critic", "reward"}}},
      {"standalone", {{"actor"}, {"critic"}, {"reference"}, {"reward"}}},
      {"critic apart", {{"actor", "reference", "reward"}, {"critic"}}},
  };
  return placements;
}

std::vector<RoleMeshes> allocations(const Placement& placement, const Cluster& cluster) {
  std::vector<RoleMeshes> out;
  const int unit = unit_devices(cluster, placement.sets.size());
  const int units = device_count(cluster) / unit;
  if (units < static_cast<int>(placement.sets.size())) return out;
  for (const std::vector<int>& counts : divisions(units, placement.sets.size())) {
    if (!worth_pricing(placement, counts)) continue;
    RoleMeshes meshes;
    int first = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      const DeviceMesh mesh = *contiguous_mesh(cluster, first, counts[i] * unit);
      for (const std::string& role : placement.sets[i]) meshes[role] = mesh;
      first += counts[i] * unit;
    }
    out.push_back(std::move(meshes));
  }
  return out;
}

PlacedStep best_allocation(const PlanningProblem& problem, const Placement& placement,
                           const PlanLimits& limits) {
  PlacedStep best{Status(Code::kInfeasible, "no allocation fits"), ""};
  for (const RoleMeshes& meshes : allocations(placement, problem.cluster)) {
    auto step = best_plan_on(problem, committed_calibration(), meshes, limits);
    if (!step.ok() || !step->verdict.fits) continue;
    if (best.step.ok() && best.step->verdict.step_s <= step->verdict.step_s) continue;
    best = {std::move(step), allocation_text(placement, meshes)};
  }
  return best;
}

std::function<bool(const CallPlan&)> in_published_layouts(const std::string& actor,
                                                          const std::string& critic) {
  const auto stages = [](const std::string& model) {
    const double billions = static_cast<double>(total_params(*find_model(model))) / 1e9;
    return billions > 50 ? 4 : billions > 20 ? 2 : 1;
  };
  return [actor_pp = stages(actor), critic_pp = stages(critic)](const CallPlan& entry) {
    if (entry.call == "generate") return true;
    const bool critics =
        entry.call == "update_critic" || entry.call == "values" || entry.call == "reward";
    const Strategy& s = entry.strategy;
    return s.tp == 8 && s.pp == (critics ? critic_pp : actor_pp) && s.interleave == 1 &&
           s.zero_stage <= 1;
  };
}

TransitionVolume transition_volume(const Transition& transition, const Cluster& cluster) {
  const ModelSize model = *find_model(transition.model);
  const DeviceMesh all = whole_cluster(cluster);
  const auto kinds = tensor_kinds(model, false);
  const auto messages = plan_reallocation(
      kinds, model.layers, param_layout(all, train_strategy(transition)),
      param_layout(generate_mesh(transition, cluster), generate_strategy(transition)), cluster, {});
  std::vector<double> received(all.devices.size(), 0);
  for (const Message& message : messages) received[message.to.value] += message.bytes;
  const double bytes = kBytesPerParameter * static_cast<double>(total_params(model));
  const double shards = transition.tp * transition.pp, gen = transition.gen_tp;
  TransitionVolume volume;
  volume.deepspeed = 1 - 1 / (shards * transition.dp);
  volume.gathered = 1 - 1 / shards;
  volume.hybridflow = (shards - gen) / (gen * shards);
  volume.received = *std::max_element(received.begin(), received.end()) / bytes;
  volume.resident = 1 / gen + 1 / shards;
  return volume;
}

Result<TransitionTime> transition_time(const PlanningProblem& problem,
                                       const Transition& transition) {
  BRAID_ASSIGN(const Program program, compile(transition_plan(problem, transition), problem));
  SimOptions options;
  options.events = true;
  BRAID_ASSIGN(const Trace trace, simulate(program, problem, committed_calibration(), options));
  TransitionTime time;
  time.fits = !trace.overflow;
  double begin = 0, end = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != EventKind::kReallocation) continue;
    begin = end == 0 ? event.start_s : std::min(begin, event.start_s);
    end = std::max(end, event.end_s);
  }
  time.move_s = end - begin;
  for (const CallSummary& call : trace.calls)
    if (trace.call_names[call.call.value] == "generate") time.generate_s = call.seconds();
  return time;
}

}  // namespace braid::reproduce
