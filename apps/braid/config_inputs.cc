#include "braid/config_inputs.h"

#include <cstdlib>

#include "base/text.h"
#include "config/reference.h"
#include "dataflow/graph.h"
#include "host/file.h"
#include "host/hub_cache.h"

namespace braid {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// "--key.sub value" and "--key.sub=value" become "key.sub=value"; the rest stays as it is.
std::vector<std::string> joined_options(const std::vector<std::string>& inputs) {
  std::vector<std::string> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].rfind("--", 0) != 0) {
      out.push_back(inputs[i]);
      continue;
    }
    std::string text = inputs[i].substr(2);
    if (text.find('=') == std::string::npos) {
      const bool has_value = i + 1 < inputs.size() && inputs[i + 1].rfind("--", 0) != 0;
      text += "=" + (has_value ? inputs[++i] : "true");  // a switch, as other programs have them
    }
    out.push_back(std::move(text));
  }
  return out;
}

// An argument that is no file may be the second value of another framework's option: a key before
// it that is not ours is then the better message.
Status missing_file(const std::string& input, const Status& status,
                    const std::vector<std::string>& overrides) {
  for (const OptionRow& row : option_rows()) {
    const std::string rest = input.substr(0, input.find_first_of(": "));
    if (row.path != rest || row.kind != OptionRow::Kind::kLeaf) continue;
    const std::string value = rest.size() < input.size() ? input.substr(rest.size() + 1) : "";
    return invalid_input(cat("'", input, "' is a key of the configuration without '='; write ",
                             rest, "=", trim(value).empty() ? "VALUE" : std::string(trim(value))));
  }
  YamlNode keys;
  keys.kind = YamlNode::Kind::kMap;
  for (const std::string& item : overrides) {
    const size_t equals = item.find('=');
    BRAID_TRY(set_yaml_path(keys, item.substr(0, equals), item.substr(equals + 1), "command line"));
  }
  BRAID_TRY(check_option_keys(keys, algorithm_names()));
  return status;
}

}  // namespace

void take_config_inputs(CLI::App& app) {
  app.allow_extras();
  app.footer(
      "INPUTS: configuration files (YAML; later ones win), then key.sub=value, --key.sub value or "
      "--key.sub=value.\n'braid config --list' prints all keys.");
}

Result<ConfigSources> config_sources(const std::vector<std::string>& inputs) {
  ConfigSources sources;
  sources.environment = environment;
  sources.algorithms = algorithm_names();
  for (const std::string& input : joined_options(inputs)) {
    if (!path_exists(input) && input.find('=') != std::string::npos) {
      sources.overrides.push_back(input);
      continue;
    }
    auto text = read_file(input);
    if (!text.ok()) return missing_file(input, text.status(), sources.overrides);
    sources.files.emplace_back(input, std::move(text).value());
  }
  if (sources.files.empty() && sources.overrides.empty())
    return invalid_input("no configuration given; name a YAML file, or keys as key.sub=value");
  return sources;
}

Result<LoadedConfig> read_config_inputs(const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(const ConfigSources sources, config_sources(inputs));
  return load_config(sources);
}

Result<Config> planning_config(const Config& config) {
  Config out = config;
  const auto locate = [](const std::string& section, const std::string& size,
                         std::string* path) -> Status {
    if (!size.empty() || path->empty()) return ok_status();
    const Result<std::string> found = locate_model(*path);
    if (!found.ok())
      return Status(found.status().code(),
                    cat(section, ".path: ", found.status().message(), "; or set ", section,
                        ".size: planning needs no weights, and of the folder config.json alone"));
    *path = *found;
    return ok_status();
  };
  BRAID_TRY(locate("model", out.model.size, &out.model.path));
  BRAID_TRY(locate("reference", out.reference.size, &out.reference.path));
  BRAID_TRY(locate("critic", out.critic.size, &out.critic.path));
  for (RewardConfig& reward : out.reward)
    if (reward.type == "model") BRAID_TRY(locate("reward", reward.size, &reward.path));
  return out;
}

}  // namespace braid
