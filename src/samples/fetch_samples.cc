#include "samples/fetch_samples.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace braid::inline samples {
namespace {

// For each sample the response of another one before it, whose prompt is another where there is
// such a one: as TRL's KTO shifts the completions of a batch.
Result<TokenLists> mismatched(const TokenLists& prompts, const TokenLists& responses) {
  const size_t samples = prompts.size();
  if (samples < 2)
    return invalid_input(
        "rollout.prompts_per_step: a step of one sample has no completion of another prompt, which "
        "the baseline is estimated with; use 2 or more");
  TokenLists out;
  for (size_t i = 0; i < samples; ++i) {
    size_t back = 1;
    while (back < samples && prompts[(i + samples - back) % samples] == prompts[i]) ++back;
    out.push_back(responses[(i + samples - (back < samples ? back : 1)) % samples]);
  }
  return out;
}

}  // namespace

Status fetch_samples(const Call& call, const DataSet& data, int64_t cursor,
                     const RolloutConfig& options, SampleStore& store) {
  const bool pairs = call.function == "pairs";
  const auto writes = [&](const char* name) {
    return std::any_of(call.writes.begin(), call.writes.end(),
                       [&](const Field& field) { return field.name == name; });
  };
  const bool answered = writes("response_ids");
  const int64_t copies = pairs ? 2 : (answered ? 1 : options.samples_per_prompt);
  std::vector<StoredSample> samples;
  TokenLists prompt_ids, response_ids;
  std::vector<float> mask;            // of all response tokens, one sample after another
  std::vector<float> wanted, scores;  // of each sample
  for (int64_t p = 0; p < options.prompts_per_step; ++p) {
    BRAID_ASSIGN(const DataRecord record, data.at(cursor + p));
    for (int64_t k = 0; k < copies; ++k) {
      const GroupId group{cursor + p};
      samples.push_back({SampleId{group.value * copies + k}, group, record.prompt, record.extra,
                         record.conversation});
      prompt_ids.push_back(record.prompt_ids);
      response_ids.push_back(pairs && k == 1 ? record.rejected_ids : record.response_ids);
      wanted.push_back(record.unwanted ? 0.0f : 1.0f);
      scores.push_back(static_cast<float>(record.score));
      mask.insert(mask.end(), record.learned.begin(), record.learned.end());
      if (record.learned.empty()) mask.resize(mask.size() + response_ids.back().size(), 1.0f);
    }
  }
  store.begin(std::move(samples));
  const Rows rows = store.all_rows();
  BRAID_TRY(store.put_tokens("prompt_ids", rows, std::move(prompt_ids)));
  if (!answered) return ok_status();
  if (writes("mismatched_ids")) {
    BRAID_ASSIGN(TokenLists others, mismatched(*store.tokens("prompt_ids").value(), response_ids));
    BRAID_TRY(store.put_tokens("mismatched_ids", rows, std::move(others)));
  }
  BRAID_TRY(store.put_tokens("response_ids", rows, std::move(response_ids)));
  if (writes("wanted")) BRAID_TRY(store.put_reals("wanted", rows, at::tensor(wanted)));
  if (writes("score")) BRAID_TRY(store.put_reals("score", rows, at::tensor(scores)));
  return writes("loss_mask") ? store.put_reals("loss_mask", rows, at::tensor(mask)) : ok_status();
}

void note_bad_rows(const Config& config, const DataSet& data, const RunPosition& position,
                   DataCheck& check) {
  const int64_t per_step = config.rollout.prompts_per_step;
  for (const BadRow& row : check.take_bad_rows()) {
    const int64_t ahead = data.next_position(row.index, position.cursor) - position.cursor;
    const int64_t step = position.step + ahead / per_step + 1;
    log_warning(cat("data.train: ", row.message, "; ",
                    config.algorithm.dynamic_sampling
                        ? "the run is saved and ends before the step that draws it"
                    : step > config.train.total_steps
                        ? "no step of this run needs it"
                        : cat("step ", step, " of ", config.train.total_steps,
                              " is the first that needs it; the run is saved and ends before it")));
  }
}

}  // namespace braid::inline samples
