#include <ATen/TensorOperators.h>
#include <ATen/ops/softplus.h>

#include "algo/batch.h"
#include "algo/functions.h"
#include "base/text.h"

namespace braid::inline algo {
namespace {

Status check_pairs(const AlgoBatch& batch) {
  const size_t samples = batch.response_lens.size();
  if (samples % 2 != 0) {
    return invalid_input(cat("pairwise loss needs an even number of samples, got ", samples));
  }
  for (size_t i = 0; i + 1 < batch.groups.size(); i += 2) {
    if (batch.groups[i] != batch.groups[i + 1]) {
      return invalid_input(
          cat("samples ", i, " and ", i + 1, " are not the chosen and rejected of one pair"));
    }
  }
  return {};
}

}  // namespace

Result<LossResult> pairwise_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                 const Denominators& denominators, const AlgorithmOptions&) {
  const auto samples = static_cast<int64_t>(batch.response_lens.size());
  BRAID_TRY(check_pairs(batch));
  BRAID_TRY(check_output(outputs.scores_S, samples, "scores"));
  const at::Tensor pairs = outputs.scores_S.reshape({samples / 2, 2});
  const at::Tensor margins = pairs.select(1, 0) - pairs.select(1, 1);
  const at::Tensor losses = at::softplus(-margins);
  LossResult result;
  result.loss = losses.sum() / denominators.groups;
  for (const double loss : to_doubles(losses)) result.metrics["rm/loss"].add(loss);
  for (const double margin : to_doubles(margins)) {
    result.metrics["rm/accuracy"].add(margin > 0 ? 1 : 0);
    result.metrics["rm/margin_mean"].add(margin);
  }
  for (const double score : to_doubles(outputs.scores_S))
    result.metrics["rm/score_mean"].add(score);
  return result;
}

}  // namespace braid::inline algo
