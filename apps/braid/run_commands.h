// Shared by the run-side subcommands.
#pragma once

#include <string>
#include <vector>

#include "config_inputs.h"
#include "dataflow/graph.h"

namespace braid {

// The configuration that inputs mean (config_inputs.h), checked by the modules that read it.
Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs);

// Everything that can be found wrong before weights are loaded: model folder and its config.json,
// tokenizer, data, rewards.
Status check_run_inputs(const Config& config, const Graph& graph);

}  // namespace braid
