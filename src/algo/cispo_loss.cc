#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>

#include "algo/functions.h"
#include "algo/policy_terms.h"

namespace braid::inline algo {
namespace {

// -sg(clip(r)) A log pi: every token keeps a gradient.
at::Tensor weighted_losses(const PolicyTerms& terms, const AlgorithmOptions& options) {
  const at::Tensor weights_R =
      at::clamp(terms.ratio_R.detach(), 1 - options.clip_low, 1 + options.clip_high);
  return -weights_R * terms.advantages_R * terms.logprobs_R;
}

}  // namespace

Result<LossResult> cispo_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                              const Denominators& denominators, const AlgorithmOptions& options) {
  return policy_objective_loss(outputs, batch, denominators, options, {weighted_losses, false});
}

}  // namespace braid::inline algo
