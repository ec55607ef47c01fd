// The checks of a configuration that only the run side knows.
#include <algorithm>

#include "base/contains.h"
#include "base/text.h"
#include "braid/data/inputs.h"
#include "config/algorithm_check.h"
#include "config/load.h"
#include "config/origin.h"
#include "dataflow/graph.h"
#include "reward/reward.h"

namespace braid {
namespace {

// An unknown name is for the command to refuse: it knows which names it takes.
Status check_algorithm(const Config& config) {
  BRAID_TRY(validate(config.algorithm));
  const bool graph =
      config.plan.graph.empty() && contains(algorithm_names(), config.algorithm.name);
  return graph ? make_graph(config.algorithm).status() : ok_status();
}

// Values that other modules check, each failure with the place of its key.
Status check_values(const LoadedConfig& loaded) {
  BRAID_TRY(at_place(loaded.resolved, check_algorithm(loaded.config)));
  return check_reward_list(loaded.config.reward, *loaded.resolved.find("reward"));
}

// Keys that were written but mean nothing to the type of their entry.
Status check_reward_keys(const RewardConfig& reward, const YamlNode& entry) {
  const std::vector<std::string> read = reward_keys(reward.type);
  for (const auto& [key, value] : entry.map) {
    if (!is_written(value) || std::find(read.begin(), read.end(), key) != read.end()) continue;
    return invalid_input(cat(value.origin, ": reward '", reward_name(reward), "': type ",
                             reward.type, " does not read '", key, "'; remove it (it reads ",
                             join(read, ", "), ")"));
  }
  return ok_status();
}

// Defaults of keys that an entry's type does not read, which would be refused where the text is a
// configuration again. REQUIRES: none of them was written.
void leave_out_unread(const std::vector<RewardConfig>& rewards, YamlNode* list) {
  for (size_t i = 0; i < rewards.size() && i < list->list.size(); ++i) {
    const std::vector<std::string> read = reward_keys(rewards[i].type);
    std::erase_if(list->list[i].map, [&](const auto& entry) {
      return std::find(read.begin(), read.end(), entry.first) == read.end();
    });
  }
}

}  // namespace

Status check_reward_list(const std::vector<RewardConfig>& rewards, const YamlNode& list) {
  for (size_t i = 0; i < rewards.size(); ++i) {
    const bool placed = i < list.list.size() && !list.list[i].origin.empty();
    BRAID_TRY(check_reward(rewards[i]).at(placed ? list.list[i].origin : cat("reward[", i, "]")));
    if (i < list.list.size()) BRAID_TRY(check_reward_keys(rewards[i], list.list[i]));
  }
  return check_rewards(rewards).at(list.origin.empty() ? "reward" : list.origin);
}

Result<LoadedConfig> load_checked(const ConfigSources& sources) {
  BRAID_ASSIGN(LoadedConfig loaded, load_config(sources));
  BRAID_TRY(check_values(loaded));
  leave_out_unread(loaded.config.reward, loaded.resolved.find("reward"));
  return loaded;
}

Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(const ConfigSources sources, config_sources(inputs));
  return load_checked(sources);
}

}  // namespace braid
