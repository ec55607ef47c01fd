#include "runtime/score_samples.h"

#include "runtime/call_rows.h"
#include "runtime/inference.h"

namespace braid {

std::vector<RewardOutcome> score_samples(Model& model, const std::vector<RewardSample>& samples,
                                         int64_t micro_tokens) {
  TokenLists prompts, responses;
  std::vector<int64_t> counts;
  for (const RewardSample& sample : samples) {
    prompts.push_back(sample.prompt_ids);
    responses.push_back(sample.response_ids);
    counts.push_back(static_cast<int64_t>(sample.prompt_ids.size() + sample.response_ids.size()));
  }
  std::vector<RewardOutcome> out;
  const auto batches = cut_by_tokens(counts, micro_tokens);
  model.keep_packed(batches.size() > 1);
  for (const SampleRows& rows : batches) {
    const at::Tensor scores =
        infer_rows(model, Inferred::kScores, prompts, responses, rows_of(rows), 1).to(at::kCPU);
    for (int64_t i = 0; i < scores.size(0); ++i) {
      RewardOutcome outcome;
      outcome.kind = RewardOutcome::Kind::kValue;
      outcome.value = scores[i].item<double>();
      out.push_back(std::move(outcome));
    }
  }
  model.rest();
  return out;
}

}  // namespace braid
