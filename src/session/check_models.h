// What can be found wrong with a run's models before their weights are read. Reads config.json
// files only. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "data/tokenizer/tokenizer.h"
#include "dataflow/graph.h"

namespace braid::inline session {

// The names whose graphs consist of functions that exist: those of make_graph() of which algo/ has
// every compute function and loss.
std::vector<std::string> trainable_algorithms();

// Whether algorithm.name is one of them. The error names them, and those that can only be planned.
Status check_trainable(const Config& config);

// The device, the folder of every role and reward model, LoRA's targets and rank, and that the
// tokenizer's ids fit the model. Appends what is not wrong but seldom meant to `notes`: positions
// that do not suffice, no token or string that ends a response, another model's tokenizer.
Status check_models(const Config& config, const Graph& graph,
                    const std::optional<Tokenizer>& tokenizer, std::vector<std::string>* notes);

}  // namespace braid::inline session
