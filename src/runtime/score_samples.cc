#include "runtime/score_samples.h"

#include <ATen/ops/index_select.h>

#include "runtime/response_rows.h"

namespace braid {

std::vector<RewardOutcome> score_samples(Model& model, const std::vector<RewardSample>& samples,
                                         int64_t micro_tokens) {
  std::vector<std::vector<int32_t>> prompts, responses;
  for (const RewardSample& sample : samples) {
    prompts.push_back(sample.prompt_ids);
    responses.push_back(sample.response_ids);
  }
  std::vector<RewardOutcome> out;
  const auto add_scores = [&](const ResponseRows& packed, const at::Tensor& hidden_TH) {
    const at::Tensor scores =
        scalar_outputs(model, at::index_select(hidden_TH, 0, packed.last_S)).to(at::kCPU);
    for (int64_t i = 0; i < scores.size(0); ++i) {
      RewardOutcome outcome;
      outcome.kind = RewardOutcome::Kind::kValue;
      outcome.value = scores[i].item<double>();
      out.push_back(std::move(outcome));
    }
  };
  for_each_micro_batch(model, prompts, responses, micro_tokens, add_scores);
  return out;
}

}  // namespace braid
