// From per-token losses to one number. Denominators are those of the whole optimizer step, so the
// gradient does not depend on how samples are split into micro-batches. Pure functions.
#pragma once

#include "algo/algorithm.h"

namespace braid::inline algo {

// How an optimizer step weights its tokens (options.loss_agg):
//   token_mean          sum over tokens / tokens                     (Yu et al., 2025, DAPO)
//   seq_mean_token_mean mean over samples of the mean over tokens    (Shao et al., 2024, GRPO)
//   seq_mean_token_sum  mean over samples of the sum over tokens
//   constant_norm       sum over tokens / (samples * loss_norm_tokens) (Liu et al., 2025)
struct TokenWeights {
  at::Tensor weights_R;    // the loss is the dot product with these
  double denominator = 1;  // loss * denominator / count is this micro-batch's own mean
  double count = 0;        // tokens or samples of this micro-batch

  at::Tensor apply(const at::Tensor& losses_R) const;
  // Adds (loss * denominator, count), whose mean over all micro-batches is the step's loss.
  void report(Metrics& metrics, const std::string& name, const at::Tensor& loss) const;
};

// Weights in the type and on the device of `like`.
TokenWeights token_weights(const AlgoBatch& batch, const Denominators& denominators,
                           const AlgorithmOptions& options, const at::Tensor& like);

// Whether what is summed is divided by a number of tokens, so that other totals scale it alone.
inline bool divides_by_tokens(const AlgorithmOptions& options) {
  return options.loss_agg == "token_mean";
}

// For each sample the mean over its tokens, repeated for each token [R]. Differentiable.
at::Tensor sample_mean_per_token(const at::Tensor& values_R,
                                 const std::vector<int64_t>& response_lens);

// For each sample the sum over its tokens [S]. Differentiable.
at::Tensor sample_sums(const at::Tensor& values_R, const std::vector<int64_t>& response_lens);

}  // namespace braid::inline algo
