// Shared by the run-side subcommands.
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "config/load.h"
#include "dataflow/graph.h"

namespace braid {

// Makes a command take configuration inputs, which CLI11 leaves in app.remaining(): files in order,
// then key.sub=value, --key.sub value or --key.sub=value.
void take_config_inputs(CLI::App& app);

// The checked configuration that such inputs mean.
Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs);

// Everything that can be found wrong before weights are loaded: model folder and its config.json,
// tokenizer, data, rewards.
Status check_run_inputs(const Config& config, const Graph& graph);

}  // namespace braid
