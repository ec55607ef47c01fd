#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>

#include "algo/functions.h"
#include "algo/policy_terms.h"

namespace braid::inline algo {
namespace {

// -min(r A, clip(r) A), for negative advantages at most -c A (Ye et al., 2020, eq. 5).
at::Tensor clipped_losses(const PolicyTerms& terms, const AlgorithmOptions& options) {
  const at::Tensor& a = terms.advantages_R;
  const at::Tensor clipped = at::clamp(terms.ratio_R, 1 - options.clip_low, 1 + options.clip_high);
  const at::Tensor losses = at::maximum(-a * terms.ratio_R, -a * clipped);
  if (options.dual_clip == 0) return losses;
  return at::where(a < 0, at::minimum(losses, -a * options.dual_clip), losses);
}

}  // namespace

Result<LossResult> policy_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                               const Denominators& denominators, const AlgorithmOptions& options) {
  return policy_objective_loss(outputs, batch, denominators, options, {clipped_losses});
}

}  // namespace braid::inline algo
