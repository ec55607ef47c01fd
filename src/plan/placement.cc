#include "plan/placement.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "base/text.h"
#include "plan/divide.h"
#include "plan/make_problem.h"
#include "plan/parts.h"
#include "plan/plan_text.h"

namespace braid::inline plan {
namespace {

template <class Accept>
CallGroup calls_that(const Graph& graph, const Accept& accept) {
  CallGroup group;
  for (const Call& call : graph.calls)
    if (uses_model(call) && accept(call)) group.push_back(&call);
  return group;
}

CallMeshes everywhere(const PlanningProblem& problem) {
  CallMeshes meshes;
  for (const Call* call : calls_that(problem.graph, [](const Call&) { return true; }))
    meshes[call->name] = whole_cluster(problem.cluster);
  return meshes;
}

// Runs of calls, in the order of the graph, of which none waits for another; training apart.
std::vector<CallGroup> stages_of(const Graph& graph) {
  const auto direct = dependencies(graph);
  std::vector<std::set<int32_t>> before(graph.calls.size());  // all that a call waits for
  std::vector<CallGroup> stages;
  for (size_t c = 0; c < graph.calls.size(); ++c) {
    for (const CallId id : direct[c]) {
      before[c].insert(id.value);
      before[c].insert(before[id.value].begin(), before[id.value].end());
    }
    const Call& call = graph.calls[c];
    if (!uses_model(call)) continue;
    const bool joins =
        !stages.empty() &&
        std::all_of(stages.back().begin(), stages.back().end(), [&](const Call* other) {
          return before[c].count(static_cast<int32_t>(other - graph.calls.data())) == 0 &&
                 (other->kind == CallKind::kTrainStep) == (call.kind == CallKind::kTrainStep);
        });
    if (!joins) stages.emplace_back();
    stages.back().push_back(&call);
  }
  return stages;
}

// The calls of a stage by role. Where two other models score, the log-probs of the model that
// generates are on all devices: its weights are there.
std::vector<CallGroup> side_by_side(const Graph& graph, const CallGroup& stage) {
  std::vector<CallGroup> groups;
  for (const Call* call : stage) {
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const CallGroup& group) {
      return group.front()->role == call->role;
    });
    if (known == groups.end())
      groups.push_back({call});
    else
      known->push_back(call);
  }
  if (groups.size() < 3) return groups;
  std::erase_if(groups, [&](const CallGroup& group) {
    const Call& first = *group.front();
    return first.kind == CallKind::kInfer &&
           std::any_of(graph.calls.begin(), graph.calls.end(), [&](const Call& call) {
             return call.kind == CallKind::kGenerate && call.role == first.role;
           });
  });
  return groups;
}

Result<CallMeshes> interleaved(const PlanningProblem& problem, const PartSizing& sizing) {
  CallMeshes meshes = everywhere(problem);
  bool apart = false;
  for (const CallGroup& stage : stages_of(problem.graph)) {
    const std::vector<CallGroup> groups = side_by_side(problem.graph, stage);
    if (groups.size() < 2) continue;
    apart = true;
    BRAID_TRY(give_sized_parts(problem, sizing, groups, &meshes));
  }
  if (apart) return meshes;
  return invalid_input(cat("runs models side by side that do not wait for each other, and graph ",
                           problem.graph.name, " has no two such calls; use colocated"));
}

Result<CallMeshes> disaggregated(const PlanningProblem& problem, const PartSizing& sizing) {
  const auto trains = [](const Call& call) { return call.kind == CallKind::kTrainStep; };
  const CallGroup training = calls_that(problem.graph, trains);
  const CallGroup inference = calls_that(problem.graph, std::not_fn(trains));
  if (training.empty() || inference.empty())
    return invalid_input(cat("gives training and inference devices of their own, ", "and graph ",
                             problem.graph.name, " has no ",
                             training.empty() ? "training" : "inference", "; use colocated"));
  CallMeshes meshes;
  BRAID_TRY(give_sized_parts(problem, sizing, {training, inference}, &meshes));
  return meshes;
}

Result<CallMeshes> standalone(const PlanningProblem& problem, const PartSizing& sizing) {
  std::vector<CallGroup> groups;
  for (const RoleSpec& spec : problem.graph.roles)
    groups.push_back(
        calls_that(problem.graph, [&](const Call& call) { return call.role == spec.role; }));
  CallMeshes meshes;
  BRAID_TRY(give_sized_parts(problem, sizing, groups, &meshes));
  return meshes;
}

Result<CallMeshes> split_in_two(const PlanningProblem& problem, const PartSizing& sizing) {
  const auto judges = [](const Call& call) {
    return call.role.value == "critic" || is_reward_role(call.role.value);
  };
  CallMeshes meshes;
  BRAID_TRY(give_sized_parts(
      problem, sizing,
      {calls_that(problem.graph, std::not_fn(judges)), calls_that(problem.graph, judges)},
      &meshes));
  return meshes;
}

Result<CallMeshes> colocated(const PlanningProblem& problem, const PartSizing&) {
  return everywhere(problem);
}

struct NamedPlacement {
  const char* name;
  Result<CallMeshes> (*make)(const PlanningProblem&, const PartSizing&);
};
constexpr NamedPlacement kPlacements[] = {{"colocated", colocated},
                                          {"interleaved", interleaved},
                                          {"disaggregated", disaggregated},
                                          {"split", split_in_two},
                                          {"standalone", standalone}};

// ---- Shares

struct NamedShare {
  std::string name;  // of a role or call
  SharedPart part;
  std::string origin;
};

// Of a sum: three thirds are written as 33%.
constexpr double kShareRounding = 0.015;

// The number of a scalar that is a share: with a point, or in percent. Whole numbers are devices.
std::optional<double> share_of(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return std::nullopt;
  std::string text(trim(node.scalar));
  const bool percent = !text.empty() && text.back() == '%';
  if (percent) text.pop_back();
  double number = 0;
  if ((!percent && text.find('.') == std::string::npos) || !parse_double(text, &number))
    return std::nullopt;
  return percent ? number / 100 : number;
}

Status check_share(double share, const YamlNode& node, const std::string& name) {
  if (share > 0 && share <= 1) return ok_status();
  return invalid_input(cat(node.origin, ": placement.", name, ": ", node.scalar,
                           " is no share of the devices: write a number above 0 and up to 1, such ",
                           "as 0.25 or 25%; single devices are written without a point"));
}

// How many of the shares, from `first` on, fill the cluster; of the last ones less may do.
Result<size_t> end_of_run(const std::vector<NamedShare>& shares, size_t first) {
  double sum = 0;
  std::vector<std::string> words;
  for (size_t i = first; i < shares.size(); ++i) {
    words.push_back(cat(shares[i].name, " ", format_double(shares[i].part.share)));
    const double with = sum + shares[i].part.share;
    if (with > 1 + kShareRounding)
      return invalid_input(
          cat(shares[i].origin, ": placement: the shares ", join(words, ", "), " sum up to ",
              format_double(with),
              "; shares in the order written must sum up to 1, all devices, before ",
              "the next begins at the first device again: lower one of them, or write lists of "
              "devices"));
    sum = with;
    if (sum >= 1 - kShareRounding) return i + 1;
  }
  return shares.size();
}

Status give_shares(const PlanningProblem& problem, const CallUnits& units,
                   const std::vector<NamedShare>& shares, CallMeshes* meshes) {
  for (size_t first = 0; first < shares.size();) {
    BRAID_ASSIGN(const size_t end, end_of_run(shares, first));
    std::vector<SharedPart> parts;
    double sum = 0;
    for (; first < end; ++first) {
      parts.push_back(shares[first].part);
      sum += parts.back().share;
    }
    if (sum < 1 - kShareRounding) parts.push_back({{}, 1 - sum});
    BRAID_TRY(give_parts(problem, units, parts, kStatedSlack, meshes)
                  .at(cat(shares[end - 1].origin, ": placement")));
  }
  return ok_status();
}

// The calls that a name of the map places: a call alone, or those of a role that are not named.
CallGroup placed_calls(const std::string& name, bool role, const YamlNode& map,
                       const Graph& graph) {
  return calls_that(graph, [&](const Call& call) {
    if (!role || call.name == name) return call.name == name;
    return call.role.value == name && map.find(call.name) == nullptr;
  });
}

}  // namespace

const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const NamedPlacement& entry : kPlacements) out.push_back(entry.name);
    return out;
  }();
  return names;
}

Result<CallMeshes> placement_meshes(const std::string& name, const PlanningProblem& problem,
                                    const PartSizing& sizing) {
  for (const NamedPlacement& entry : kPlacements)
    if (name == entry.name) return entry.make(problem, sizing).at(name);
  return invalid_input(cat("'", name, "' is no placement", did_you_mean(name, placement_names()),
                           "; known: auto, ", join(placement_names(), ", "),
                           ", or a map of roles to devices or shares of them"));
}

Result<CallMeshes> read_placement(const YamlNode& node, const PlanningProblem& problem,
                                  const PartSizing& sizing) {
  const std::string where = cat(node.origin, ": placement");
  if (node.kind == YamlNode::Kind::kNull) return CallMeshes();
  if (node.kind == YamlNode::Kind::kScalar) {
    if (node.scalar == "auto") return CallMeshes();
    return placement_meshes(node.scalar, problem, sizing).at(where);
  }
  if (node.kind != YamlNode::Kind::kMap)
    return invalid_input(cat(where, " must be a name or a map of roles to devices"));
  CallMeshes meshes;
  std::vector<NamedShare> shares;
  for (const auto& [name, value] : node.map) {
    const Call* call = find_call(problem.graph, name);
    const bool role = find_role(problem.graph, RoleId{name}) != nullptr;
    if (!role && (call == nullptr || !uses_model(*call)))
      return invalid_input(cat(value.origin, ": placement.", name, ": graph ", problem.graph.name,
                               " has no such role, and no call of this name with a model"));
    const CallGroup calls = placed_calls(name, role, node, problem.graph);
    if (const std::optional<double> share = share_of(value); share) {
      BRAID_TRY(check_share(*share, value, name));
      shares.push_back({name, {calls, *share}, value.origin});
      continue;
    }
    BRAID_ASSIGN(const DeviceMesh mesh,
                 read_mesh(value, cat("placement.", name), &problem.cluster));
    BRAID_TRY(validate_mesh(problem.cluster, mesh).at(cat(value.origin, ": placement.", name)));
    for (const Call* placed : calls) meshes[placed->name] = mesh;
  }
  BRAID_TRY(give_shares(problem, sizing.units, shares, &meshes));
  return meshes;
}

const char* searching_key(const Config& config) {
  if (config.plan.automatic) return "plan.auto";
  const YamlNode& placement = config.placement;
  const bool places = placement.kind == YamlNode::Kind::kScalar && placement.scalar == "auto" &&
                      config.cluster.kind != YamlNode::Kind::kNull;
  return places && config.plan.file.empty() ? "placement: auto" : nullptr;
}

}  // namespace braid::inline plan
