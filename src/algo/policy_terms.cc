#include "algo/policy_terms.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>

#include "algo/aggregation.h"
#include "algo/batch.h"
#include "algo/kl.h"
#include "algo/statistics.h"

namespace braid::inline algo {
namespace {

Result<PolicyTerms> policy_terms(const ModelOutputs& outputs, const AlgoBatch& batch,
                                 const AlgorithmOptions& options) {
  PolicyTerms terms;
  terms.logprobs_R = outputs.logprobs_R;
  BRAID_TRY(check_output(terms.logprobs_R, token_count(batch), "policy log-probs"));
  BRAID_ASSIGN(terms.old_R, token_field(batch, "old_logprobs"));
  BRAID_ASSIGN(terms.advantages_R, token_field(batch, "advantages"));
  const auto type = terms.logprobs_R.scalar_type();
  terms.old_R = terms.old_R.to(type);
  terms.advantages_R = terms.advantages_R.to(type);
  at::Tensor log_ratio_R = terms.logprobs_R - terms.old_R;
  // The geometric mean of the token ratios (Zheng et al., 2025, GSPO, eq. 7).
  if (options.ratio_level == "sequence") {
    log_ratio_R = sample_mean_per_token(log_ratio_R, batch.response_lens);
  }
  terms.ratio_R = at::exp(log_ratio_R);
  return terms;
}

// The tokens' losses, each weighted by how much likelier the trainer finds its token than the
// sampler did: at most tis_cap, or nothing beyond the bounds of icepop.
Result<at::Tensor> sampled_losses(const at::Tensor& losses_R, const PolicyTerms& terms,
                                  const AlgoBatch& batch, const AlgorithmOptions& options,
                                  Metrics& metrics) {
  if (!weighs_sampled(options)) return losses_R;
  BRAID_ASSIGN(const at::Tensor sampler_R, token_field(batch, "sampler_logprobs"));
  at::Tensor weights_R = at::exp(terms.old_R - sampler_R.to(terms.old_R.scalar_type()));
  if (options.icepop_high > 0) {
    const at::Tensor outside_R =
        (weights_R < options.icepop_low).logical_or(weights_R > options.icepop_high);
    metrics["policy/icepop_masked_frac"] = distribution(to_doubles(outside_R.to(at::kFloat)));
    return losses_R * weights_R.masked_fill(outside_R, 0);
  }
  weights_R = weights_R.clamp_max(options.tis_cap);
  metrics["policy/tis_weight_mean"] = metrics["policy/tis_weight_min"] =
      distribution(to_doubles(weights_R));
  return losses_R * weights_R;
}

void add_ratio_metrics(const PolicyTerms& terms, const AlgorithmOptions& options,
                       bool clips_gains_only, Metrics& metrics) {
  const std::vector<double> ratios = to_doubles(terms.ratio_R);
  const std::vector<double> advantages = to_doubles(terms.advantages_R);
  const std::vector<double> logprobs = to_doubles(terms.logprobs_R);
  const std::vector<double> old = to_doubles(terms.old_R);
  Metric clipped, clipped_low, clipped_high, ratio, update;
  for (size_t i = 0; i < ratios.size(); ++i) {
    const bool low = ratios[i] < 1 - options.clip_low && (advantages[i] < 0 || !clips_gains_only);
    const bool high = ratios[i] > 1 + options.clip_high && (advantages[i] > 0 || !clips_gains_only);
    clipped.add(low || high ? 1 : 0);
    clipped_low.add(low ? 1 : 0);
    clipped_high.add(high ? 1 : 0);
    ratio.add(ratios[i]);
    update.add(kl_estimate("k3", old[i], logprobs[i]));
  }
  metrics["policy/clipfrac"] = clipped;
  metrics["policy/clipfrac_low"] = clipped_low;
  metrics["policy/clipfrac_high"] = clipped_high;
  metrics["policy/ratio_mean"] = metrics["policy/ratio_max"] = ratio;
  metrics["kl/update"] = update;
}

// Adds coef * KL(new || ref) to the loss.
Status add_kl_term(const PolicyTerms& terms, const AlgoBatch& batch, const KlOptions& kl,
                   const TokenWeights& weights, LossResult& result) {
  if (kl.coef == 0 || kl.in != "loss") return {};
  BRAID_ASSIGN(at::Tensor ref_R, token_field(batch, "ref_logprobs"));
  ref_R = ref_R.to(terms.logprobs_R.scalar_type());
  const at::Tensor kl_loss = weights.apply(kl_estimate(kl.estimator, terms.logprobs_R, ref_R));
  result.loss = result.loss + kl.coef * kl_loss;
  weights.report(result.metrics, "policy/kl_loss", kl_loss);
  add_kl_metrics(result.metrics, to_doubles(terms.logprobs_R), to_doubles(ref_R));
  result.metrics["kl/coef"].add(kl.coef);
  return {};
}

Status add_entropy_term(const ModelOutputs& outputs, const AlgoBatch& batch, double coef,
                        const TokenWeights& weights, LossResult& result) {
  if (coef == 0 && !outputs.entropy_R.defined()) return {};
  BRAID_TRY(check_output(outputs.entropy_R, token_count(batch), "policy entropy"));
  result.metrics["policy/entropy"] = distribution(to_doubles(outputs.entropy_R));
  if (coef != 0) result.loss = result.loss - coef * weights.apply(outputs.entropy_R);
  return {};
}

}  // namespace

Result<LossResult> policy_objective_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                         const Denominators& denominators,
                                         const AlgorithmOptions& options,
                                         const PolicyObjective& objective) {
  BRAID_ASSIGN(const PolicyTerms terms, policy_terms(outputs, batch, options));
  const TokenWeights weights = token_weights(batch, denominators, options, terms.logprobs_R);
  LossResult result;
  BRAID_ASSIGN(const at::Tensor of_tokens_R, objective.losses_R(terms, options));
  BRAID_ASSIGN(const at::Tensor losses_R,
               sampled_losses(of_tokens_R, terms, batch, options, result.metrics));
  result.loss = weights.apply(losses_R);
  weights.report(result.metrics, "policy/loss", result.loss);
  add_ratio_metrics(terms, options, objective.clips_gains_only, result.metrics);
  BRAID_TRY(add_kl_term(terms, batch, options.kl, weights, result));
  BRAID_TRY(add_entropy_term(outputs, batch, options.entropy_coef, weights, result));
  return result;
}

}  // namespace braid::inline algo
