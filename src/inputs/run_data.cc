#include "inputs/run_data.h"

#include <algorithm>

#include "base/text.h"
#include "dataflow/model_spec.h"
#include "host/adapter_folder.h"
#include "host/file.h"
#include "reward/label_check.h"

namespace braid {
namespace {

// The specification of the policy, or none where the configuration names no model.
Result<std::optional<ModelSpec>> policy_spec(const Config& config) {
  const ModelConfig& model = config.model;
  const std::string file = model.path.empty() ? model.config : join_path(model.path, "config.json");
  // Loading says what an adapter folder lacks.
  const bool adapters = !model.path.empty() && is_adapter_folder(model.path);
  if (file.empty() || adapters) return std::optional<ModelSpec>();
  BRAID_ASSIGN(const std::string text, read_file(file).at("model.path"));
  BRAID_ASSIGN(ModelSpec spec, parse_model_spec(text, file));
  return std::optional<ModelSpec>(std::move(spec));
}

Status check_ids(const std::vector<int32_t>& ids, const ModelSpec& spec) {
  for (const int32_t id : ids)
    if (id >= spec.vocab)
      return invalid_input(
          cat("token id ", id, " is outside of the model's vocabulary of ", spec.vocab, " tokens"));
  return ok_status();
}

// What generation, or a table of positions, would refuse later.
Status check_positions(const DataRecord& record, const ModelSpec& spec, DataNeed need,
                       int64_t response_limit) {
  const bool generated = need == DataNeed::kPrompts;
  if (spec.max_positions == 0 || (!generated && !spec.learned_positions)) return ok_status();
  const auto prompt = static_cast<int64_t>(record.prompt_ids.size());
  const int64_t response =
      generated
          ? response_limit
          : static_cast<int64_t>(std::max(record.response_ids.size(), record.rejected_ids.size()));
  if (prompt + response <= spec.max_positions) return ok_status();
  return invalid_input(
      cat("a prompt of ", prompt, " and ", generated ? "up to " : "", response,
          " response tokens exceed the model's ", spec.max_positions, " positions; ",
          generated ? "lower rollout.max_response_length, or let data.max_prompt_length with "
                      "data.overlong drop or cut such prompts"
                    : "shorten the line"));
}

Status check_labels(const DataRecord& record, const std::vector<RewardConfig>& rewards) {
  for (const RewardConfig& reward : rewards) BRAID_TRY(check_label(reward, record.extra));
  return ok_status();
}

}  // namespace

Result<RecordCheck> record_check(const Config& config, DataNeed need) {
  BRAID_ASSIGN(const std::optional<ModelSpec> spec, policy_spec(config));
  const int64_t response_limit = config.rollout.max_response_length;
  const bool scored = need == DataNeed::kPrompts;
  return RecordCheck([=, rewards = config.reward](const DataRecord& record) -> Status {
    if (scored) BRAID_TRY(check_labels(record, rewards));
    if (!spec) return ok_status();
    for (const auto* ids : {&record.prompt_ids, &record.response_ids, &record.rejected_ids})
      BRAID_TRY(check_ids(*ids, *spec));
    return check_positions(record, *spec, need, response_limit);
  });
}

DataNeed data_need(const Graph& graph) {
  for (const Call& call : graph.calls) {
    if (call.kind != CallKind::kFetch) continue;
    if (call.function == "samples") return DataNeed::kSamples;
    if (call.function == "pairs") return DataNeed::kPairs;
  }
  return DataNeed::kPrompts;
}

Result<RunData> load_run_data(const Config& config, const std::string& source, DataNeed need) {
  RunData out;
  const std::string folder =
      config.tokenizer.path.empty() ? config.model.path : config.tokenizer.path;
  const std::string file = is_folder(folder) ? join_path(folder, "tokenizer.json") : folder;
  if (!folder.empty() && path_exists(file)) {
    BRAID_ASSIGN(out.tokenizer, load_tokenizer(folder));
  } else if (!config.tokenizer.path.empty()) {
    return not_found(cat("tokenizer.path: ", file, " does not exist"));
  }
  const Tokenizer* tokenizer = out.tokenizer ? &*out.tokenizer : nullptr;
  BRAID_ASSIGN(const RecordCheck check, record_check(config, need));
  BRAID_ASSIGN(out.data, load_data_set(source, need, tokenizer, config.data, check));
  return out;
}

}  // namespace braid
