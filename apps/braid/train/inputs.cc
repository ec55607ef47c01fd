// What commands that compute read besides weights, and the checks of --dry-run.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/text.h"
#include "braid/data/inputs.h"
#include "checkpoint/run_folder.h"
#include "config/algorithm_traits.h"
#include "config/evaluates.h"
#include "host/file.h"
#include "host/machine.h"
#include "inputs/reward_columns.h"
#include "inputs/reward_reader.h"
#include "inputs/run_data.h"
#include "reward/reward.h"
#include "session/check_models.h"
#include "weights/check_tokenizers.h"
#include "weights/roles.h"

namespace braid {
namespace {

// A folder that can be made or written: the nearest one that exists decides. Permissions do not say
// it all (read-only file systems, root, /proc), so a folder is made there and removed.
Status check_writable(const std::string& key, const std::string& folder) {
  std::string existing = folder;
  while (!existing.empty() && !path_exists(existing)) existing = parent_folder(existing);
  if (existing.empty()) existing = ".";
  if (!is_folder(existing))
    return invalid_input(cat(key, ": ", existing, " is a file, not a folder"));
  std::string trial = join_path(existing, ".braid-XXXXXX");
  if (::mkdtemp(trial.data()) == nullptr)
    return invalid_input(cat(key, ": cannot write in ", existing, ": ", std::strerror(errno)));
  ::rmdir(trial.c_str());
  return ok_status();
}

// A program as execvp finds it.
Status check_program(const std::string& key, const std::string& program) {
  std::vector<std::string> places;
  if (program.find('/') != std::string::npos) {
    places = {program};
  } else if (const char* path = std::getenv("PATH")) {
    for (const std::string& folder : split(path, ':')) places.push_back(join_path(folder, program));
  }
  for (const std::string& place : places)
    if (!is_folder(place) && ::access(place.c_str(), X_OK) == 0) return ok_status();
  return not_found(cat(key, ": ", program, " is no program that can be started",
                       places.size() == 1 ? "" : " (looked for in PATH)"));
}

std::string counts_text(const std::string& source, const DataSet& data) {
  return cat(source, ": ", data.size(), " usable lines, ", data.dropped(), " dropped and ",
             data.truncated(), " cut as longer than data.max_prompt_length; ", data.description());
}

// Starts what can be started cheaply; a program of type command is only looked for.
Status check_reward_files(const std::vector<RewardConfig>& rewards, const DataSet& data) {
  BRAID_ASSIGN(const auto started, make_rewards(rewards));
  BRAID_TRY(check_columns(started, rewards, data));
  for (const RewardConfig& reward : rewards)
    if (reward.type == "command")
      BRAID_TRY(check_program(cat("reward '", reward_name(reward), "'"), reward.command[0]));
  return ok_status();
}

}  // namespace

Status check_shared_data(const Config& config, int64_t ranks) {
  for (const auto& [key, source] : {std::make_pair("data.train", config.data.train),
                                    std::make_pair("data.eval", config.data.eval)})
    if (source == "-")
      return invalid_input(cat(key, ": standard input goes to one process, but each of ", ranks,
                               " ranks reads the data; write it to a file and name that"));
  return ok_status();
}

Status check_eval_data(const Config& config) {
  if (config.data.eval.empty() || !evaluates(config)) return ok_status();
  return load_run_data(config, config.data.eval, DataNeed::kPrompts).status().at("data.eval");
}

Result<std::vector<CommandLogOptions>> log_commands(const Config& config) {
  std::vector<CommandLogOptions> out;
  const std::string folder = run_folder(config);
  if (!config.log.command.empty()) {
    BRAID_TRY(check_program("log.command", config.log.command[0]));
    out.push_back({config.log.command});
  }
  for (const auto& [tracker, project] :
       {std::make_pair("wandb", config.log.wandb), std::make_pair("mlflow", config.log.mlflow)}) {
    if (project.empty()) continue;
    BRAID_ASSIGN(out.emplace_back(), tracker_log(tracker, project, folder));
  }
  for (CommandLogOptions& command : out) {
    command.timeout_s = std::max(command.timeout_s, config.log.command_timeout_s);
    if (command.key == "log.command") command.timeout_s = config.log.command_timeout_s;
    command.stop_on_error = config.log.command_on_error == "stop";
  }
  return out;
}

Status check_run_inputs(const Config& config, const Graph& graph) {
  BRAID_TRY(check_threads(config.train.threads).at("train.threads"));
  BRAID_TRY(check_writable("run.dir", run_folder(config)));
  if (!config.checkpoint.dir.empty())
    BRAID_TRY(check_writable("checkpoint.dir", config.checkpoint.dir));
  BRAID_TRY(log_commands(config).status());
  std::vector<std::string> notes;
  BRAID_TRY(check_models(config, graph, std::nullopt, &notes));
  BRAID_ASSIGN(const RunData train, load_run_data(config, config.data.train, data_need(graph)));
  notes.clear();
  BRAID_TRY(check_models(config, graph, train.tokenizer, &notes));
  BRAID_TRY(check_shared_tokenizers(config, graph, train.tokenizer, &notes));
  if (needs_rewards(config, graph)) {
    BRAID_ASSIGN(const RewardReaders readers, load_reward_readers(config, train.tokenizer));
    BRAID_TRY(check_reward_texts(readers, train.data));
  }
  for (const std::string& note : notes) log_warning(note);
  log_info(counts_text(config.data.train, train.data));
  if (!config.data.eval.empty()) {
    BRAID_ASSIGN(const RunData eval, load_run_data(config, config.data.eval, DataNeed::kPrompts));
    log_info(counts_text(config.data.eval, eval.data));
  }
  const bool optional = algorithm_traits(config.algorithm.name).rewards_optional;
  if (generates(graph) && config.reward.empty() && !optional)
    return invalid_input(
        "reward: the list is empty; an algorithm that generates needs at least one reward");
  return generates(graph) ? check_reward_files(config.reward, train.data) : ok_status();
}

}  // namespace braid
