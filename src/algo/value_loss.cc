#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/square.h>

#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/statistics.h"

namespace braid::inline algo {

Result<LossResult> value_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                              const Denominators& denominators, const AlgorithmOptions& options) {
  BRAID_TRY(check_output(outputs.values_R, token_count(batch), "values of the critic"));
  BRAID_ASSIGN(at::Tensor old_R, token_field(batch, "values"));
  BRAID_ASSIGN(at::Tensor returns_R, token_field(batch, "returns"));
  const at::Tensor& values_R = outputs.values_R;
  old_R = old_R.to(values_R.scalar_type());
  returns_R = returns_R.to(values_R.scalar_type());
  const double clip = options.value_clip;
  at::Tensor errors_R = at::square(values_R - returns_R);
  LossResult result;
  if (clip > 0) {
    const at::Tensor clipped_R = old_R + at::clamp(values_R - old_R, -clip, clip);
    const at::Tensor clipped_errors_R = at::square(clipped_R - returns_R);
    const auto count = static_cast<double>(values_R.numel());
    const double moved = (clipped_errors_R > errors_R).sum().item<double>();
    if (count > 0) result.metrics["critic/clipfrac"].add(moved / count, count);
    errors_R = at::maximum(errors_R, clipped_errors_R);
  }
  result.metrics["critic/loss"] = distribution(to_doubles(errors_R / 2));
  result.loss = errors_R.sum() * (options.critic_coef / (2 * denominators.tokens));
  return result;
}

Result<LossResult> policy_and_value_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                         const Denominators& denominators,
                                         const AlgorithmOptions& options) {
  BRAID_ASSIGN(LossResult policy, policy_loss(outputs, batch, denominators, options));
  BRAID_ASSIGN(const LossResult value, value_loss(outputs, batch, denominators, options));
  policy.loss = policy.loss + value.loss;
  merge(policy.metrics, value.metrics);
  return policy;
}

}  // namespace braid::inline algo
