#include "pricing/measured.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"

namespace braid::inline pricing {
namespace {

Result<Profile> read_profile(const std::string& path, const ReadText& read) {
  BRAID_ASSIGN(const std::string text, read(path));
  BRAID_ASSIGN(const Json json, parse_json(text, path));
  return profile_from_json(json).at(path);
}

Status check_precision(const Profile& profile, const PlanningProblem& problem) {
  for (const auto& [role, model] : problem.models)
    if (model.precision != profile.precision)
      return invalid_input(cat("was measured in ", precision_name(profile.precision), ", and the ",
                               role, " computes in ", precision_name(model.precision),
                               "; set model.dtype, or measure again"));
  return ok_status();
}

bool any_release_known(const Calibration& calibration, const std::string& engine) {
  return std::any_of(
      calibration.engines.begin(), calibration.engines.end(),
      [&](const std::string& known) { return engine_family(known) == engine_family(engine); });
}

// Names without releases, each once.
std::string measured_engines(const Calibration& calibration) {
  std::set<std::string> families;
  for (const std::string& engine : calibration.engines)
    if (!engine.empty()) families.insert(engine_family(engine));
  return join(std::vector<std::string>(families.begin(), families.end()), ", ");
}

bool has_own_section(const std::string& role) {
  const auto roles = {"actor", "critic", "reference", "reward", "teacher"};
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

std::string unmeasured_note(const Calibration& calibration, const std::string& key,
                            const std::string& engine) {
  const std::string stack = engine_stack(engine);
  return cat(key, ": '", engine, "' was not measured itself: priced as ",
             stack.empty() ? "the average engine"
                           : cat("the average of engines built like it (", stack, ")"),
             did_you_mean(engine, calibration.engines),
             "; measured: ", measured_engines(calibration));
}

}  // namespace

Result<Calibration> with_profiles(Calibration calibration, const PlanningProblem& problem,
                                  const ReadText& read) {
  std::set<std::string> seen;
  for (const Node& node : problem.cluster.nodes) {
    if (node.profile.empty() || !seen.insert(node.profile).second) continue;
    BRAID_ASSIGN(Profile profile, read_profile(node.profile, read).at("cluster.profile"));
    BRAID_TRY(check_precision(profile, problem).at(cat("cluster.profile: ", node.profile)));
    calibration.profiles.push_back(std::move(profile));
  }
  return calibration;
}

std::vector<std::string> pricing_notes(const Calibration& calibration,
                                       const PlanningProblem& problem) {
  std::vector<std::string> notes;
  const bool on_gpus = problem.cluster.nodes.front().gpu.architecture != "cpu";
  const bool in_f32 =
      std::any_of(problem.models.begin(), problem.models.end(),
                  [](const auto& entry) { return entry.second.precision == Precision::kF32; });
  if (on_gpus && in_f32)
    notes.push_back(
        "priced in f32, the default; on GPUs model.dtype=bf16 is usual and much faster");
  for (const auto& [role, model] : problem.models)
    if (const std::string note = assumption_note(model.spec);
        !note.empty() && std::find(notes.begin(), notes.end(), note) == notes.end())
      notes.push_back(note);
  for (const RoleSpec& spec : problem.graph.roles)
    if (!has_own_section(spec.role.value))
      notes.push_back(cat("the graph's role ", spec.role.value,
                          " has the size of model.size: a size of its own can be stated for actor, "
                          "critic, reference, reward and teacher"));
  for (const auto& [key, engine] : {std::pair("plan.train_engine", &problem.train_engine),
                                    std::pair("plan.generate_engine", &problem.generate_engine)})
    if (!engine->empty() && !any_release_known(calibration, *engine))
      notes.push_back(unmeasured_note(calibration, key, *engine));
  for (const Profile& profile : calibration.profiles)
    for (const auto& [role, model] : problem.models) {
      const std::string shape = layer_shape(model.spec);
      const bool known = std::any_of(profile.layers.begin(), profile.layers.end(),
                                     [&](const LayerTime& time) { return time.model == shape; });
      if (!known)
        notes.push_back(cat("the profile of ", profile.gpu.key, " has no layers of the ", role,
                            "'s shape (", shape, "): they are priced from the device's rates"));
    }
  return notes;
}

}  // namespace braid::inline pricing
