#include "algo/aggregation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "algo/batch.h"

namespace braid::inline algo {
namespace {

double token_weight(const AlgorithmOptions& options, const Denominators& denominators,
                    int64_t response_len) {
  const auto length = static_cast<double>(response_len);
  if (divides_by_tokens(options)) return 1 / denominators.tokens;
  if (options.loss_agg == "seq_mean_token_mean") return 1 / (length * denominators.samples);
  if (options.loss_agg == "seq_mean_token_sum") return 1 / denominators.samples;
  BRAID_CHECK(options.loss_agg == "constant_norm", options.loss_agg);
  return 1 / (denominators.samples * options.loss_norm_tokens);
}

}  // namespace

at::Tensor TokenWeights::apply(const at::Tensor& losses_R) const {
  return (losses_R * weights_R).sum();
}

void TokenWeights::report(Metrics& metrics, const std::string& name, const at::Tensor& loss) const {
  if (count > 0) metrics[name].add(loss.item<double>() * denominator / count, count);
}

TokenWeights token_weights(const AlgoBatch& batch, const Denominators& denominators,
                           const AlgorithmOptions& options, const at::Tensor& like) {
  std::vector<double> weights;
  for (const int64_t length : batch.response_lens) {
    weights.insert(weights.end(), length, token_weight(options, denominators, length));
  }
  const bool by_token = divides_by_tokens(options);
  TokenWeights result;
  result.denominator = by_token ? denominators.tokens : denominators.samples;
  result.count = static_cast<double>(by_token ? weights.size() : batch.response_lens.size());
  result.weights_R = at::tensor(weights, like.options().requires_grad(false));
  return result;
}

at::Tensor sample_mean_per_token(const at::Tensor& values_R,
                                 const std::vector<int64_t>& response_lens) {
  const at::Tensor lengths_S =
      at::tensor(response_lens, values_R.options().dtype(at::kLong).requires_grad(false));
  const at::Tensor sample_R = at::repeat_interleave(lengths_S);
  const at::Tensor sums_S = at::zeros({lengths_S.size(0)}, values_R.options().requires_grad(false))
                                .index_add(0, sample_R, values_R);
  return (sums_S / at::clamp_min(lengths_S, 1)).index_select(0, sample_R);
}

at::Tensor sample_sums(const at::Tensor& values_R, const std::vector<int64_t>& response_lens) {
  const at::Tensor lens_S = at::tensor(response_lens, at::kLong).to(values_R.device());
  const at::Tensor sample_R = at::repeat_interleave(lens_S);
  const at::Tensor none_S = at::zeros({lens_S.size(0)}, values_R.options().requires_grad(false));
  return at::index_add(none_S, 0, sample_R, values_R);
}

}  // namespace braid::inline algo
