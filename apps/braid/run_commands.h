// Shared by the run-side subcommands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "config/load.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "dataflow/graph.h"

namespace braid {

// Makes a command take configuration inputs, which CLI11 leaves in app.remaining(): files in order,
// then key.sub=value, --key.sub value or --key.sub=value.
void take_config_inputs(CLI::App& app);

// The checked configuration that such inputs mean.
Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs);

// What a run reads beside weights. The tokenizer is empty where the configuration names none.
struct RunData {
  std::optional<Tokenizer> tokenizer;
  DataSet data;
};

// The tokenizer and the data of `source` (data.train or data.eval) as the model will see them.
Result<RunData> load_run_data(const Config& config, const std::string& source, DataNeed need);

// What the graph's fetch call asks of a line of data.
DataNeed data_need(const Graph& graph);

// Everything that can be found wrong before weights are loaded: model folder and its config.json,
// tokenizer, data, rewards.
Status check_run_inputs(const Config& config, const Graph& graph);

}  // namespace braid
