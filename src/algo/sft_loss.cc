#include <ATen/TensorOperators.h>

#include <algorithm>

#include "algo/batch.h"
#include "algo/functions.h"

namespace braid::inline algo {

Result<LossResult> sft_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                            const Denominators& denominators, const AlgorithmOptions&) {
  const int64_t tokens = token_count(batch);
  BRAID_TRY(check_output(outputs.logprobs_R, tokens, "log-probs"));
  at::Tensor losses_R = -outputs.logprobs_R;
  auto kept = static_cast<double>(tokens);
  if (batch.fields.count("loss_mask") > 0) {
    BRAID_ASSIGN(const at::Tensor mask_R, token_field(batch, "loss_mask"));
    losses_R = losses_R * mask_R.to(losses_R.scalar_type());
    kept = mask_R.sum().item<double>();
  }
  const at::Tensor sum = losses_R.sum();
  LossResult result;
  result.loss = sum / std::max(denominators.tokens, 1.0);  // 0 where none is kept
  if (kept > 0) result.metrics["sft/loss"].add(sum.item<double>() / kept, kept);
  return result;
}

}  // namespace braid::inline algo
