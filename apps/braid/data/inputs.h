// Shared by the run-side subcommands.
#pragma once

#include <string>
#include <vector>

#include "braid/config_inputs.h"
#include "dataflow/graph.h"
#include "report/command_log.h"

namespace braid {

// The configuration that inputs mean (config_inputs.h), checked by the modules that read it.
Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs);
Result<LoadedConfig> load_checked(const ConfigSources& sources);

// The same with folders of this machine in place of names of the Hugging Face hub
// (host/hub_cache.h); errors name the key. Data are located when they are read.
Result<Config> local_config(const Config& config);

// Every rank of a job reads the data, which it cannot from standard input.
Status check_shared_data(const Config& config, int64_t ranks);

// Reads and checks data.eval where a run evaluates, so that a bad row shows before weights load.
Status check_eval_data(const Config& config);

// Checks every entry of the list and that names differ; `list` is its tree, for places, and for
// keys that the type of their entry does not read.
Status check_reward_list(const std::vector<RewardConfig>& rewards, const YamlNode& list);

// The child processes that log.command, log.wandb and log.mlflow ask for, which are not started.
// Fails where a program is not there.
Result<std::vector<CommandLogOptions>> log_commands(const Config& config);

// Everything that can be found wrong before weights are loaded: device, folders, models and their
// config.json, adapters, tokenizer, data, rewards, programs.
Status check_run_inputs(const Config& config, const Graph& graph);

}  // namespace braid
