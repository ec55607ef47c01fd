// Where the folders that a configuration names are on this machine.
#include "braid/data/inputs.h"
#include "base/text.h"
#include "host/hub_cache.h"
#include "reward/reward.h"

namespace braid {

Result<Config> local_config(const Config& config) {
  Config out = config;
  std::vector<std::pair<std::string, std::string*>> paths = {
      {"model.path", &out.model.path},
      {"tokenizer.path", &out.tokenizer.path},
      {"reference.path", &out.reference.path},
      {"critic.path", &out.critic.path}};
  for (RewardConfig& reward : out.reward)
    if (reward.type == "model")
      paths.emplace_back(cat("reward '", reward_name(reward), "'"), &reward.path);
  for (const auto& [key, path] : paths)
    if (!path->empty()) {
      BRAID_ASSIGN(*path, locate_model(*path).at(key));
    }
  return out;
}

}  // namespace braid
