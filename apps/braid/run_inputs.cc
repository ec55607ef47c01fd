// What run-side commands read besides weights, and the checks of --dry-run.
#include "base/log.h"
#include "base/text.h"
#include "dataflow/model_spec.h"
#include "host/file.h"
#include "host/hub_cache.h"
#include "inputs/run_data.h"
#include "reward/reward.h"
#include "run_commands.h"

namespace braid {
namespace {

Status check_model(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.path.empty() && model.config.empty())
    return invalid_input(
        "model.path: no model given; name a Hugging Face folder, or a config.json as model.config");
  const std::string file = model.path.empty() ? model.config : join_path(model.path, "config.json");
  BRAID_ASSIGN(const std::string text, read_file(file).at("model.path"));
  return parse_model_spec(text, file).status();
}

std::string counts_text(const std::string& source, const DataSet& data) {
  return cat(source, ": ", data.size(), " usable lines, ", data.dropped(), " dropped and ",
             data.truncated(), " cut as longer than data.max_prompt_length; ", data.description());
}

// Starts what can be started cheaply; a program of type command is only looked for.
Status check_reward_files(const std::vector<RewardConfig>& rewards) {
  BRAID_TRY(make_rewards(rewards).status());
  for (const RewardConfig& reward : rewards) {
    const std::string place = cat("reward '", reward_name(reward), "': ");
    if (reward.type == "model" && !is_folder(reward.path))
      return not_found(cat(place, reward.path, " is not a model folder"));
    const bool has_path =
        reward.type == "command" && reward.command[0].find('/') != std::string::npos;
    if (has_path && !path_exists(reward.command[0]))
      return not_found(cat(place, reward.command[0], " does not exist"));
  }
  return ok_status();
}

}  // namespace

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

Status check_eval_data(const Config& config) {
  if (config.data.eval.empty() || (config.eval.every_steps == 0 && !config.eval.at_start))
    return ok_status();
  return load_run_data(config, config.data.eval, DataNeed::kPrompts).status().at("data.eval");
}

Status check_run_inputs(const Config& config, const Graph& graph) {
  BRAID_TRY(check_model(config));
  BRAID_ASSIGN(const RunData train, load_run_data(config, config.data.train, data_need(graph)));
  log_info(counts_text(config.data.train, train.data));
  if (!config.data.eval.empty()) {
    BRAID_ASSIGN(const RunData eval, load_run_data(config, config.data.eval, DataNeed::kPrompts));
    log_info(counts_text(config.data.eval, eval.data));
  }
  if (generates(graph) && config.reward.empty())
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  return check_reward_files(config.reward);
}

}  // namespace braid
