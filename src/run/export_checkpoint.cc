#include "run/export_checkpoint.h"

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "identity/fingerprint.h"
#include "identity/run_identity.h"
#include "plan/make_problem.h"
#include "weights/roles.h"
#include "weights/run_state.h"

namespace braid::inline run {
namespace {

// The options of the run, its files by paths that do not depend on where it was started.
Result<Config> checkpoint_config(const Json& numbers, const std::vector<std::string>& overrides) {
  BRAID_ASSIGN(Json options, json_field<Json>(numbers, "options"));
  const Json files = numbers.value("files", Json::object());
  for (const auto& [key, file] : files.items()) options[key] = file;
  const Json known = flat_options(Config());  // also keys that are younger than the checkpoint
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals);
    if (equals == std::string::npos || (!options.contains(key) && !known.contains(key)))
      return invalid_input(cat("'", text, "' is not KEY=VALUE for a key of the checkpoint"));
    options[key] = text.substr(equals + 1);
  }
  return config_of(options);
}

}  // namespace

Status export_checkpoint(const std::string& path, const std::string& out,
                         const std::vector<std::string>& overrides) {
  BRAID_ASSIGN(const CheckpointState state, load_checkpoint(path, kWeightsGroup));
  BRAID_ASSIGN(const Config config, checkpoint_config(state.numbers, overrides).at(path));
  BRAID_ASSIGN(Graph graph, configured_graph(config));
  graph.roles.erase(std::remove_if(graph.roles.begin(), graph.roles.end(),
                                   [](const RoleSpec& spec) { return !spec.trained; }),
                    graph.roles.end());
  BRAID_ASSIGN(const Roles roles, load_roles(config, graph));
  if (config.lora.rank > 0)
    BRAID_TRY(check_same_weights(state.numbers.value("frozen", Json()),
                                 frozen_fingerprints(config, roles, {}), {}));
  for (const auto& [name, role] : roles)
    BRAID_TRY(load_role_weights(name, state, *role.model).at(path));
  for (const auto& [name, role] : roles) BRAID_TRY(export_role(name, role, config, out));
  if (state.numbers.contains("open_step"))
    log_warning(cat(path, " is within a step: the models have a part of its updates"));
  return ok_status();
}

}  // namespace braid::inline run
