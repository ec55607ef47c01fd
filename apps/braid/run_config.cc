// braid config, and the checks of a configuration that only the run side knows.
#include <cstdio>

#include "base/text.h"
#include "commands.h"
#include "config/algorithm_check.h"
#include "config/load.h"
#include "config/reference.h"
#include "reward/reward.h"
#include "run_commands.h"

namespace braid {
namespace {

// Values that other modules check, each failure with the place of its key.
Status check_values(const LoadedConfig& loaded) {
  BRAID_TRY(at_place(loaded.resolved, validate(loaded.config.algorithm)));
  const YamlNode* list = loaded.resolved.find("reward");
  for (size_t i = 0; i < loaded.config.reward.size(); ++i)
    BRAID_TRY(check_reward(loaded.config.reward[i])
                  .at(i < list->list.size() ? list->list[i].origin : "reward"));
  return check_rewards(loaded.config.reward);
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

Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(LoadedConfig loaded, read_config_inputs(inputs));
  BRAID_TRY(check_values(loaded));
  return loaded;
}

extern const Command kConfigCommand{"config", "check a configuration and print it", define_config};

}  // namespace braid
