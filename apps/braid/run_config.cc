// braid config, and how every command on a configuration reads its inputs.
#include <cstdio>
#include <cstdlib>

#include "algo/algorithm.h"
#include "base/text.h"
#include "commands.h"
#include "config/load.h"
#include "config/reference.h"
#include "host/file.h"
#include "reward/reward.h"
#include "run_commands.h"

namespace braid {
namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Values that other modules check, each failure with the place of its key.
Status check_values(const LoadedConfig& loaded) {
  BRAID_TRY(at_place(loaded.resolved, validate(loaded.config.algorithm)));
  const YamlNode* list = loaded.resolved.find("reward");
  for (size_t i = 0; i < loaded.config.reward.size(); ++i)
    BRAID_TRY(check_reward(loaded.config.reward[i])
                  .at(i < list->list.size() ? list->list[i].origin : "reward"));
  return check_rewards(loaded.config.reward);
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
Status missing_file(const Status& status, const std::vector<std::string>& overrides) {
  YamlNode keys;
  keys.kind = YamlNode::Kind::kMap;
  for (const std::string& item : overrides) {
    const size_t equals = item.find('=');
    BRAID_TRY(set_yaml_path(keys, item.substr(0, equals), item.substr(equals + 1), "command line"));
  }
  BRAID_TRY(check_option_keys(keys));
  return status;
}

struct ConfigArguments {
  bool list = false;
  bool resolve = false;
};

Status print_config(const ConfigArguments& arguments, const std::vector<std::string>& inputs) {
  if (arguments.list) {
    std::printf("%s", configuration_table().c_str());
    return ok_status();
  }
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  if (arguments.resolve) {
    std::printf("%s", yaml_text(loaded.resolved, true).c_str());
    return ok_status();
  }
  BRAID_ASSIGN(const BatchArithmetic arithmetic, batch_arithmetic(loaded.config));
  std::printf("%s\n", arithmetic_text(loaded.config, arithmetic).c_str());
  return ok_status();
}

Action define_config(CLI::App& app) {
  auto arguments = std::make_shared<ConfigArguments>();
  take_config_inputs(app);
  app.add_flag("--resolve", arguments->resolve, "print every key with its value and origin");
  app.add_flag("--list", arguments->list, "print the table of all keys with their meaning");
  return [arguments, &app] { return print_config(*arguments, app.remaining()); };
}

}  // namespace

void take_config_inputs(CLI::App& app) {
  app.allow_extras();
  app.footer(
      "INPUTS: configuration files (YAML; later ones win), then key.sub=value, --key.sub value or "
      "--key.sub=value.\n'braid config --list' prints all keys.");
}

Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs) {
  ConfigSources sources;
  sources.environment = environment;
  sources.algorithm_defaults = default_options;
  for (const std::string& input : joined_options(inputs)) {
    if (!path_exists(input) && input.find('=') != std::string::npos) {
      sources.overrides.push_back(input);
      continue;
    }
    auto text = read_file(input);
    if (!text.ok()) return missing_file(text.status(), sources.overrides);
    sources.files.emplace_back(input, std::move(text).value());
  }
  if (sources.files.empty() && sources.overrides.empty())
    return invalid_input("no configuration given; name a YAML file, or keys as key.sub=value");
  BRAID_ASSIGN(LoadedConfig loaded, load_config(sources));
  BRAID_TRY(check_values(loaded));
  return loaded;
}

extern const Command kConfigCommand{"config", "check a configuration and print it", define_config};

}  // namespace braid
