#include "restrictions.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/contains.h"
#include "base/text.h"
#include "foreign/baselines/baselines.h"
#include "plan/placement.h"
#include "plan/validate.h"
#include "real.h"
#include "search/judge.h"

namespace braid::reproduce {
namespace {

using Condition = std::function<bool(const CallPlan&)>;
constexpr PlanParts kNoParts = {false, false, 0, false, false, false};
constexpr size_t kJudgedAlternatives = 2;

CallKind kind_of(const PlanningProblem& problem, const CallPlan& entry) {
  return find_call(problem.graph, entry.call)->kind;
}

bool is_inside(const DeviceMesh& mesh, const DeviceMesh& part) {
  return std::all_of(mesh.devices.begin(), mesh.devices.end(),
                     [&](DeviceId device) { return contains(part.devices, device); });
}

Condition both(Condition one, Condition other) {
  return [one = std::move(one), other = std::move(other)](const CallPlan& entry) {
    return one(entry) && other(entry);
  };
}

Condition on_all_devices(const PlanningProblem& problem) {
  return [all = whole_cluster(problem.cluster)](const CallPlan& entry) {
    return entry.mesh.devices.size() == all.devices.size();
  };
}

Condition on(CallMeshes meshes) {
  return [meshes = std::move(meshes)](const CallPlan& entry) {
    return entry.mesh == meshes.at(entry.call);
  };
}

// ---- Layouts of engines

// DeepSpeed with its hybrid engine: data parallel under ZeRO; generation in tensor-parallel groups.
Condition deepspeed_layouts(const PlanningProblem& problem) {
  return [&problem](const CallPlan& entry) {
    const Strategy& s = entry.strategy;
    return s.pp == 1 && (s.tp == 1 || kind_of(problem, entry) == CallKind::kGenerate);
  };
}

bool is_megatron(const Strategy& s) {
  return s.zero_stage <= 1 && s.schedule == PipelineOrder::kOneForwardOneBackward;
}

// Pipelines of what trains alone.
Condition app_separate_layouts(const PlanningProblem& problem) {
  return [&problem](const CallPlan& entry) {
    return is_megatron(entry.strategy) && entry.strategy.interleave == 1 &&
           (entry.strategy.pp == 1 || kind_of(problem, entry) == CallKind::kTrainStep);
  };
}

Condition verl_layouts(const PlanningProblem& problem) {
  return [&problem](const CallPlan& entry) {
    const Strategy& s = entry.strategy;
    if (kind_of(problem, entry) == CallKind::kGenerate) return s.pp == 1;
    return is_megatron(s) || (s.tp == 1 && s.pp == 1);
  };
}

bool rlhfuse_layouts(const CallPlan& entry) {
  return is_megatron(entry.strategy) && entry.strategy.interleave == 1;
}

// ---- Placements

DeviceMesh part_of(const PlanningProblem& problem, double begin, double end) {
  const int all = device_count(problem.cluster);
  const int first = static_cast<int>(begin * all);
  return *contiguous_mesh(problem.cluster, first, static_cast<int>(end * all) - first);
}

// Meshes of a placement with a name, where the graph has it.
void add_named(const std::string& name, const PlanningProblem& problem, const Condition& layouts,
               Restriction* out) {
  auto meshes = placement_meshes(name, problem);
  if (!meshes.ok()) return;
  for (const auto& [call, mesh] : *meshes) out->meshes.push_back(mesh);
  out->alternatives.push_back(both(on(*std::move(meshes)), layouts));
}

// Reference and reward model on halves, everything else on all devices (APP's
// InitialRewardSeparate); nothing where one of them is not there.
std::optional<CallMeshes> reward_on_halves(const PlanningProblem& problem) {
  if (find_role(problem.graph, RoleId{"reference"}) == nullptr ||
      find_role(problem.graph, RoleId{"reward"}) == nullptr)
    return std::nullopt;
  CallMeshes meshes;
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    meshes[call.name] = whole_cluster(problem.cluster);
    if (call.role.value == "reference") meshes[call.name] = part_of(problem, 0, 0.5);
    if (call.role.value == "reward") meshes[call.name] = part_of(problem, 0.5, 1);
  }
  return meshes;
}

// Updates on one part and all else on the other; within its part a call may have any devices.
Condition separated(const PlanningProblem& problem, double training) {
  return [&problem, first = part_of(problem, 0, training),
          last = part_of(problem, training, 1)](const CallPlan& entry) {
    const bool trains = kind_of(problem, entry) == CallKind::kTrainStep;
    return is_inside(entry.mesh, trains ? first : last);
  };
}

// ---- The spaces

Restriction one_layout(const PlanningProblem& problem) {
  Restriction out{"one layout", {}, {}, Waiting::kNothing, kNoParts};
  for (const int tp : {1, 2, 4, 8})
    for (const int pp : {1, 2, 4, 8, 16})
      if (device_count(problem.cluster) % (tp * pp) == 0)
        out.alternatives.push_back(both(on_all_devices(problem), [tp, pp](const CallPlan& entry) {
          return entry.strategy.tp == tp && entry.strategy.pp == pp;
        }));
  return out;
}

Restriction app_space(const PlanningProblem& problem) {
  Restriction out{"app", {}, {}, Waiting::kFrozenWeights, kNoParts};
  const Condition layouts = deepspeed_layouts(problem);
  out.alternatives.push_back(both(on_all_devices(problem), layouts));
  add_named("interleaved", problem, layouts, &out);
  if (auto meshes = reward_on_halves(problem))
    out.alternatives.push_back(both(on(*std::move(meshes)), layouts));
  for (const double training : {0.25, 0.5, 0.75}) {
    out.alternatives.push_back(both(separated(problem, training), app_separate_layouts(problem)));
    out.meshes.push_back(part_of(problem, 0, training));
    out.meshes.push_back(part_of(problem, training, 1));
  }
  return out;
}

Restriction verl_space(const PlanningProblem& problem) {
  Restriction out{"verl", {}, {}, Waiting::kAnything, kNoParts};
  for (const char* name : {"colocated", "split", "standalone"})
    add_named(name, problem, verl_layouts(problem), &out);
  return out;
}

Status waiting_allowed(const RolePlan& role, Waiting waiting, const PlanningProblem& problem) {
  const bool away = role.weights == Residency::kHost || role.optimizer == Residency::kHost;
  const RoleSpec* spec = find_role(problem.graph, role.role);
  const bool trained = spec != nullptr && spec->trained;
  if (!away || waiting == Waiting::kAnything) return ok_status();
  if (waiting == Waiting::kFrozenWeights && !trained) return ok_status();
  return invalid_input(cat("role ", role.role, " waits in host memory"));
}

SpaceOptions space_options(const Restriction& restriction, const Condition& alternative,
                           const PlanningProblem& problem, const SearchBudget& budget) {
  SpaceOptions out;
  out.threads = budget.threads;
  out.allowed = alternative;
  out.meshes = restriction.meshes;
  out.allowed_role = [&problem, waiting = restriction.waiting](const RolePlan& role) {
    return waiting_allowed(role, waiting, problem).ok();
  };
  return out;
}

SearchOptions search_options(const SearchBudget& budget) {
  SearchOptions out;
  out.judged = budget.judged;
  out.polish = false;
  out.bound = false;
  out.units.max_units = budget.units;
  out.units.threads = budget.threads;
  return out;
}

// The alternatives with plans that fit, the best by the evaluator first.
Result<std::vector<Condition>> ranked(const PlanningProblem& problem, const CallPricer& pricer,
                                      const Restriction& restriction, const SearchBudget& budget) {
  if (restriction.alternatives.size() < 2) return restriction.alternatives;
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < restriction.alternatives.size(); ++i) {
    auto space = make_plan_space(
        problem, pricer, space_options(restriction, restriction.alternatives[i], problem, budget));
    if (space.status().code() == Code::kInfeasible) continue;
    BRAID_TRY(space.status());
    const auto found = search_plans(*space, search_options(budget));
    if (found.status().code() == Code::kInfeasible) continue;
    BRAID_TRY(found.status());
    order.emplace_back(found->best_cost_us, i);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > kJudgedAlternatives) order.resize(kJudgedAlternatives);
  std::vector<Condition> out;
  for (const auto& [cost, i] : order) out.push_back(restriction.alternatives[i]);
  if (out.empty()) return Status(Code::kInfeasible, "no plan of the space fits");
  return out;
}

}  // namespace

Restriction whole_space() { return {"all"}; }

std::vector<Restriction> steps_of_space(const PlanningProblem& problem) {
  Restriction layouts{"layouts", {on_all_devices(problem)}, {}, Waiting::kNothing, kNoParts};
  Restriction placement{"placement", {}, {}, Waiting::kNothing, kNoParts};
  return {one_layout(problem), layouts, placement, whole_space()};
}

std::vector<Restriction> systems(const PlanningProblem& problem) {
  Restriction real{"real", {in_published_space}, {}, Waiting::kFrozenWeights, kNoParts};
  Restriction rlhfuse{"rlhfuse",
                      {both(on_all_devices(problem), rlhfuse_layouts)},
                      {},
                      Waiting::kFrozenWeights,
                      {true, true, 0, false, false}};
  return {real, app_space(problem), rlhfuse, verl_space(problem)};
}

Status within(const Restriction& restriction, const ExecutionPlan& plan,
              const PlanningProblem& problem) {
  if (!allows(restriction.parts, plan))
    return invalid_input(cat(restriction.name, ": fusion or staleness"));
  for (const RolePlan& role : plan.roles)
    BRAID_TRY(waiting_allowed(role, restriction.waiting, problem).at(restriction.name));
  const auto meets = [&](const Condition& alternative) {
    return std::all_of(plan.calls.begin(), plan.calls.end(), alternative);
  };
  if (restriction.alternatives.empty() ||
      std::any_of(restriction.alternatives.begin(), restriction.alternatives.end(), meets))
    return ok_status();
  return invalid_input(cat(restriction.name, ": devices or layouts of a call"));
}

Result<ExecutionPlan> published_plan(const std::string& system, const PlanningProblem& problem) {
  if (system == "real") return real_heuristic_plan(problem);
  if (system == "verl") return verl_hybrid_plan(problem);
  if (system != "app") return invalid_input(cat(system, ": no published plan for this problem"));
  BRAID_ASSIGN(ExecutionPlan plan, deepspeed_chat_plan(problem));
  const auto meshes = reward_on_halves(problem);
  if (!meshes) return plan;
  for (CallPlan& entry : plan.calls) {
    if (entry.mesh == meshes->at(entry.call)) continue;
    entry.mesh = meshes->at(entry.call);
    entry.strategy.dp /= 2;
  }
  BRAID_TRY(validate(plan, problem));
  return plan;
}

Result<WholeFound> optimum(const PlanningProblem& problem, const CallPricer& pricer,
                           const Calibration& calibration, const Restriction& restriction,
                           const SearchBudget& budget) {
  BRAID_ASSIGN(std::vector<Condition> alternatives, ranked(problem, pricer, restriction, budget));
  if (alternatives.empty()) alternatives.push_back({});
  std::optional<WholeFound> best;
  for (const Condition& alternative : alternatives) {
    WholeOptions options;
    options.space = space_options(restriction, alternative, problem, budget);
    options.search = search_options(budget);
    options.parts = restriction.parts;
    options.fusion.units = options.fusion.fused = 2;
    options.fusion.trial_units = 1;
    options.judge = budget.judge;
    auto found = search_whole(problem, pricer, calibration, options);
    if (found.status().code() == Code::kInfeasible) continue;
    BRAID_TRY(found.status());
    if (!best || found->best.verdict.step_s < best->best.verdict.step_s) best = *std::move(found);
  }
  if (best) return *std::move(best);
  return Status(Code::kInfeasible, cat(restriction.name, ": no plan fits"));
}

}  // namespace braid::reproduce
