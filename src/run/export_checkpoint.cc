#include "run/export_checkpoint.h"

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint_reader.h"
#include "identity/fingerprint.h"
#include "identity/run_identity.h"
#include "plan/make_problem.h"
#include "weights/export_role.h"
#include "weights/roles.h"

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

// What adapters were trained on is compared as a run that continues does.
Status check_base(const Config& config, const Graph& graph, const Json& numbers) {
  if (config.lora.rank == 0) return ok_status();
  BRAID_ASSIGN(const Roles roles, load_roles(config, graph));
  Json now = frozen_fingerprints(config, roles, {});
  BRAID_ASSIGN(const Json stored, stored_fingerprints(config, graph));
  now.update(stored, true);
  return check_same_weights(numbers.value("frozen", Json()), now, {});
}

}  // namespace

Status export_checkpoint(const std::string& path, const std::string& out,
                         const std::vector<std::string>& overrides) {
  BRAID_ASSIGN(CheckpointReader saved, CheckpointReader::open(path));
  const Json& numbers = saved.numbers();
  BRAID_ASSIGN(const Config config, checkpoint_config(numbers, overrides).at(path));
  BRAID_ASSIGN(Graph graph, configured_graph(config));
  std::erase_if(graph.roles, [](const RoleSpec& spec) { return !spec.trained; });
  BRAID_TRY(check_base(config, graph, numbers));
  for (const RoleSpec& spec : graph.roles)
    BRAID_TRY(export_saved_role(spec, saved, config, out).at(path));
  if (numbers.contains("open_step"))
    log_warning(cat(path, " is within a step: the models have a part of its updates"));
  return ok_status();
}

}  // namespace braid::inline run
