#include "runtime/run_data.h"

#include <algorithm>

#include "base/text.h"
#include "host/file.h"

namespace braid {

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
  BRAID_ASSIGN(out.data, load_data_set(source, need, tokenizer, config.data));
  return out;
}

Status fetch_samples(const Call& call, const DataSet& data, int64_t cursor,
                     const RolloutConfig& options, SampleStore& store) {
  const bool pairs = call.function == "pairs";
  const bool answered = std::any_of(call.writes.begin(), call.writes.end(), [](const Field& field) {
    return field.name == "response_ids";
  });
  const int64_t copies = pairs ? 2 : (answered ? 1 : options.samples_per_prompt);
  std::vector<StoredSample> samples;
  TokenLists prompt_ids, response_ids;
  for (int64_t p = 0; p < options.prompts_per_step; ++p) {
    BRAID_ASSIGN(const DataRecord record, data.at(cursor + p));
    for (int64_t k = 0; k < copies; ++k) {
      const GroupId group{cursor + p};
      samples.push_back({SampleId{group.value * copies + k}, group, record.prompt, record.extra,
                         record.messages});
      prompt_ids.push_back(record.prompt_ids);
      response_ids.push_back(pairs && k == 1 ? record.rejected_ids : record.response_ids);
    }
  }
  store.begin(std::move(samples));
  const Rows rows = store.all_rows();
  BRAID_TRY(store.put_tokens("prompt_ids", rows, std::move(prompt_ids)));
  return answered ? store.put_tokens("response_ids", rows, std::move(response_ids)) : ok_status();
}

}  // namespace braid
