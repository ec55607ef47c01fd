// Models that read the policy's token ids must mean the same by them. Reads tokenizer files and
// config.json; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options.h"
#include "data/tokenizer/tokenizer.h"
#include "dataflow/graph.h"

namespace braid::inline weights {

// That the tokenizers beside models of reference.path and critic.path, where the graph has these
// roles, and beside the reward model that a critic begins as, give every id of the policy's
// tokenizer the same token. Errors name key, folder and the first token that differs. Reward models
// (reward[].type: model), where the run asks them, may have another one. Appends to `notes` which
// of them have, which folder could not be compared, and which cuts texts otherwise.
Status check_shared_tokenizers(const Config& config, const Graph& graph,
                               const std::optional<Tokenizer>& tokenizer,
                               std::vector<std::string>* notes);

// The tokenizer that the configuration names; empty for none.
Result<std::optional<Tokenizer>> configured_tokenizer(const Config& config);

// The same of reward models alone, with that tokenizer.
Status check_reward_tokenizers(const Config& config, std::vector<std::string>* notes);

}  // namespace braid::inline weights
