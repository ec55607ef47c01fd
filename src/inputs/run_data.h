// What a run reads beside weights: tokenizer and data, as its configuration says. Needs no
// libtorch, so that commands that only look at data start without it. Thread-safe.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include "config/options.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "dataflow/graph.h"

namespace braid::inline inputs {

// The tokenizer is empty where the configuration names none.
struct RunData {
  std::optional<Tokenizer> tokenizer;
  DataSet data;
  const Tokenizer* tokenizer_or_null() const { return tokenizer ? &*tokenizer : nullptr; }
};

// What a record must offer beside being readable, so that no step of a run ends over its line: ids
// of the model's vocabulary, a length within its positions (with the longest response, where one is
// generated), and the labels that rewards need. Without a model in the configuration only labels.
Result<RecordCheck> record_check(const Config& config, DataNeed need);

// tokenizer.path, or the model's folder where that has a tokenizer; "" for none.
std::string tokenizer_path(const Config& config);

// The tokenizer and the data of `source` (data.train or data.eval) as the model will see them. Rows
// that are not reached in check_s seconds are left to a DataCheck.
constexpr double kCheckAll = std::numeric_limits<double>::infinity();
Result<RunData> load_run_data(const Config& config, const std::string& source, DataNeed need,
                              double check_s = kCheckAll);

// What the graph's fetch call asks of a line of data.
DataNeed data_need(const Graph& graph);

}  // namespace braid::inline inputs
