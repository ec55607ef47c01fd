#include "runtime/score_samples.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>

#include "runtime/response_rows.h"
#include "train/packing.h"

namespace braid {

std::vector<RewardOutcome> score_samples(Model& model, const std::vector<RewardSample>& samples,
                                         int64_t micro_tokens) {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<int32_t>> prompts, responses;
  std::vector<int64_t> counts;
  for (const RewardSample& sample : samples) {
    prompts.push_back(sample.prompt_ids);
    responses.push_back(sample.response_ids);
    counts.push_back(static_cast<int64_t>(sample.prompt_ids.size() + sample.response_ids.size()));
  }
  std::vector<RewardOutcome> out;
  const auto batches = pack_micro_batches(counts, micro_tokens);
  model.keep_packed(batches.size() > 1);
  for (const auto& rows : batches) {
    const ResponseRows packed = pack_responses(prompts, responses, rows, model.options().device);
    const at::Tensor hidden = model.forward(packed.batch, nullptr);
    const at::Tensor scores =
        scalar_outputs(model, at::index_select(hidden, 0, packed.last_S)).to(at::kCPU);
    for (size_t i = 0; i < rows.size(); ++i) {
      RewardOutcome outcome;
      outcome.kind = RewardOutcome::Kind::kValue;
      outcome.value = scores[static_cast<int64_t>(i)].item<double>();
      out.push_back(std::move(outcome));
    }
  }
  model.rest();
  return out;
}

}  // namespace braid
