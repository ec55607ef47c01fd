#include <ATen/TensorOperators.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/square.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "algo/batch.h"
#include "algo/functions.h"

namespace braid::inline algo {
namespace {

// The mean over the samples of the optimizer step.
LossResult mean_of(const at::Tensor& losses_S, const at::Tensor& scores_S,
                   const Denominators& denominators) {
  LossResult result;
  result.loss = losses_S.sum() / std::max(denominators.samples, 1.0);
  for (const double loss : to_doubles(losses_S)) result.metrics["rm/loss"].add(loss);
  for (const double score : to_doubles(scores_S)) result.metrics["rm/score_mean"].add(score);
  return result;
}

}  // namespace

Result<LossResult> squared_error_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                      const Denominators& denominators, const AlgorithmOptions&) {
  const at::Tensor& scores_S = outputs.scores_S;
  BRAID_TRY(check_output(scores_S, static_cast<int64_t>(batch.response_lens.size()), "scores"));
  BRAID_ASSIGN(const at::Tensor wanted_S, sample_field(batch, "score"));
  const at::Tensor errors_S = scores_S - wanted_S.to(scores_S.scalar_type());
  LossResult result = mean_of(at::square(errors_S), scores_S, denominators);
  for (const double error : to_doubles(errors_S.abs()))
    result.metrics["rm/error_abs_mean"].add(error);
  return result;
}

Result<LossResult> cross_entropy_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                      const Denominators& denominators, const AlgorithmOptions&) {
  const at::Tensor& scores_S = outputs.scores_S;
  BRAID_TRY(check_output(scores_S, static_cast<int64_t>(batch.response_lens.size()), "scores"));
  BRAID_ASSIGN(const at::Tensor wanted_S, sample_field(batch, "wanted"));
  // How far the score is on the side of its label.
  const at::Tensor margins_S = at::where(wanted_S > 0, scores_S, -scores_S);
  LossResult result = mean_of(at::softplus(-margins_S), scores_S, denominators);
  for (const double margin : to_doubles(margins_S))
    result.metrics["rm/accuracy"].add(margin > 0 ? 1 : 0);
  return result;
}

}  // namespace braid::inline algo
