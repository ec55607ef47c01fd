// KTO (Ethayarajh et al., 2024, arXiv 2402.01306, eq. 7 and 8), as TRL computes it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <numeric>

#include "algo/aggregation.h"
#include "algo/batch.h"
#include "algo/functions.h"

namespace braid::inline algo {
namespace {

// Reports each sample's number under a name for the wanted and one for the others.
void report_by_label(Metrics& metrics, const at::Tensor& rewards_S, const at::Tensor& margins_S,
                     const std::vector<double>& wanted) {
  const std::vector<double> rewards = to_doubles(rewards_S), margins = to_doubles(margins_S);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool good = wanted[i] > 0;
    metrics[good ? "kto/wanted_reward_mean" : "kto/unwanted_reward_mean"].add(rewards[i]);
    metrics["kto/accuracy"].add(margins[i] > 0 ? 1 : 0);
  }
}

}  // namespace

Result<ComputeResult> kto_baseline(const AlgoBatch& batch, const AlgorithmOptions&, AlgoState&) {
  BRAID_ASSIGN(const std::vector<double> policy, token_numbers(batch, "mismatched_logprobs"));
  BRAID_ASSIGN(const std::vector<double> ref, token_numbers(batch, "mismatched_ref_logprobs"));
  const double sum = std::accumulate(policy.begin(), policy.end(), 0.0) -
                     std::accumulate(ref.begin(), ref.end(), 0.0);
  const size_t samples = batch.response_lens.size();
  ComputeResult result;
  result.sums.mismatched.sum = sum;
  result.sums.mismatched.count = static_cast<double>(samples);
  const double mean = sums_to_use(batch, result.sums).mismatched.mean();
  result.metrics["kto/kl"].add(std::max(mean, 0.0));
  result.fields["kl_baseline"] = from_doubles(std::vector<double>(samples, std::max(mean, 0.0)),
                                              batch.fields.at("mismatched_logprobs"));
  return result;
}

Result<LossResult> kto_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                            const Denominators& denominators, const AlgorithmOptions& options) {
  BRAID_TRY(check_output(outputs.logprobs_R, token_count(batch), "log-probs"));
  BRAID_ASSIGN(const at::Tensor ref_R, token_field(batch, "ref_logprobs"));
  BRAID_ASSIGN(at::Tensor baseline_S, sample_field(batch, "kl_baseline"));
  BRAID_ASSIGN(const at::Tensor label_S, sample_field(batch, "wanted"));
  const auto type = outputs.logprobs_R.scalar_type();
  const at::Tensor wanted_S = label_S > 0;
  const at::Tensor ratios_S = sample_sums(outputs.logprobs_R - ref_R.to(type), batch.response_lens);
  const at::Tensor gains_S = ratios_S - baseline_S.to(type);
  // How far the sample is on its side of the baseline.
  const at::Tensor margins_S = at::where(wanted_S, gains_S, -gains_S);
  const at::Tensor weights_S = at::where(wanted_S, options.wanted_weight, options.unwanted_weight);
  const at::Tensor losses_S = weights_S.to(type) * (1 - at::sigmoid(options.beta * margins_S));
  LossResult result;
  result.loss = losses_S.sum() / std::max(denominators.samples, 1.0);
  for (const double loss : to_doubles(losses_S)) result.metrics["kto/loss"].add(loss);
  report_by_label(result.metrics, options.beta * ratios_S, margins_S, to_doubles(label_S));
  return result;
}

}  // namespace braid::inline algo
