// What a run reads beside weights: tokenizer and data, as its configuration says. Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "config/options.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "dataflow/graph.h"

namespace braid {

// The tokenizer is empty where the configuration names none.
struct RunData {
  std::optional<Tokenizer> tokenizer;
  DataSet data;
};

// The tokenizer and the data of `source` (data.train or data.eval) as the model will see them.
Result<RunData> load_run_data(const Config& config, const std::string& source, DataNeed need);

// What the graph's fetch call asks of a line of data.
DataNeed data_need(const Graph& graph);

}  // namespace braid
