#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>

#include "algo/aggregation.h"
#include "algo/batch.h"
#include "algo/functions.h"
#include "base/text.h"

namespace braid::inline algo {
namespace {

// Rows of the preferred samples of a micro-batch, and of those that they are preferred to.
struct Pairs {
  std::vector<int64_t> chosen, rejected;
};

// As the data brought them: one sample after the other.
Result<Pairs> pairs_in_order(const AlgoBatch& batch) {
  const auto samples = static_cast<int64_t>(batch.groups.size());
  Pairs out;
  for (int64_t i = 0; i < samples; i += 2) {
    if (i + 1 == samples || batch.groups[i] != batch.groups[i + 1])
      return invalid_input(
          cat("sample ", i, " is not followed by the one that it is preferred to"));
    out.chosen.push_back(i), out.rejected.push_back(i + 1);
  }
  return out;
}

// As `preferred` says: 1 and -1 within a group, 0 for samples of no pair.
Result<Pairs> pairs_by_preference(const AlgoBatch& batch) {
  BRAID_ASSIGN(const std::vector<double> preferred, sample_numbers(batch, "preferred"));
  std::map<int64_t, int64_t> rejected;  // by group
  for (size_t i = 0; i < preferred.size(); ++i)
    if (preferred[i] < 0) rejected[batch.groups[i]] = static_cast<int64_t>(i);
  Pairs out;
  for (size_t i = 0; i < preferred.size(); ++i) {
    if (preferred[i] <= 0) continue;
    const auto other = rejected.find(batch.groups[i]);
    if (other == rejected.end())
      return invalid_input(cat("sample ", i, " is preferred to none of its micro-batch"));
    out.chosen.push_back(static_cast<int64_t>(i)), out.rejected.push_back(other->second);
  }
  return out;
}

Result<Pairs> pairs_of(const AlgoBatch& batch) {
  return batch.fields.count("preferred") > 0 ? pairs_by_preference(batch) : pairs_in_order(batch);
}

at::Tensor rows(const at::Tensor& values_S, const std::vector<int64_t>& index) {
  return at::index_select(values_S, 0, at::tensor(index, at::kLong).to(values_S.device()));
}

// Sum, or mean, over the tokens of each sample. Differentiable.
at::Tensor per_sample(const at::Tensor& values_R, const std::vector<int64_t>& lens, bool mean) {
  const at::Tensor sums_S = sample_sums(values_R, lens);
  if (!mean) return sums_S;
  const at::Tensor lens_S = at::tensor(lens, at::kLong).to(values_R.device());
  return sums_S / lens_S.clamp_min(1).to(values_R.scalar_type());
}

// Of the difference d of the two log-ratios of a pair (Rafailov et al., 2023, eq. 7; Azar et al.,
// 2023, arXiv 2310.12036, eq. 17; Zhao et al., 2023, arXiv 2305.10425; Chowdhury et al., 2024,
// arXiv 2403.00409, eq. 12; label smoothing: Mitchell, 2023, "A note on DPO with noisy
// preferences").
at::Tensor losses_of(const at::Tensor& d_P, const AlgorithmOptions& options) {
  const double beta = options.beta, flipped = options.label_smoothing;
  if (options.preference_loss == "ipo") return (d_P - 1 / (2 * beta)).pow(2);
  if (options.preference_loss == "hinge") return at::relu(1 - beta * d_P);
  const at::Tensor right_P = at::softplus(-beta * d_P), wrong_P = at::softplus(beta * d_P);
  if (options.preference_loss == "robust")
    return ((1 - flipped) * right_P - flipped * wrong_P) / (1 - 2 * flipped);
  return (1 - flipped) * right_P + flipped * wrong_P;
}

void report(Metrics& metrics, const std::string& name, const at::Tensor& values) {
  for (const double value : to_doubles(values)) metrics[name].add(value);
}

void report_margins(Metrics& metrics, const std::string& prefix, const at::Tensor& margins_P) {
  for (const double margin : to_doubles(margins_P)) {
    metrics[cat(prefix, "/accuracy")].add(margin > 0 ? 1 : 0);
    metrics[cat(prefix, "/margin_mean")].add(margin);
  }
}

}  // namespace

Result<LossResult> preference_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                   const Denominators& denominators,
                                   const AlgorithmOptions& options) {
  BRAID_TRY(check_output(outputs.logprobs_R, token_count(batch), "log-probs"));
  BRAID_ASSIGN(const at::Tensor ref_R, token_field(batch, "ref_logprobs"));
  BRAID_ASSIGN(const Pairs pairs, pairs_of(batch));
  const bool mean = options.preference_loss == "ipo";
  const at::Tensor ratios_S = per_sample(
      outputs.logprobs_R - ref_R.to(outputs.logprobs_R.scalar_type()), batch.response_lens, mean);
  const at::Tensor chosen_P = rows(ratios_S, pairs.chosen);
  const at::Tensor rejected_P = rows(ratios_S, pairs.rejected);
  const at::Tensor losses_P = losses_of(chosen_P - rejected_P, options);
  LossResult result;
  result.loss = losses_P.sum() / std::max(denominators.groups, 1.0);
  report(result.metrics, "dpo/loss", losses_P);
  report(result.metrics, "dpo/chosen_reward_mean", options.beta * chosen_P);
  report(result.metrics, "dpo/rejected_reward_mean", options.beta * rejected_P);
  report_margins(result.metrics, "dpo", options.beta * (chosen_P - rejected_P));
  return result;
}

// Hong et al., 2024, eq. 4 to 7: the likelihood of a response is the geometric mean over its
// tokens.
Result<LossResult> odds_ratio_loss(const ModelOutputs& outputs, const AlgoBatch& batch,
                                   const Denominators& denominators,
                                   const AlgorithmOptions& options) {
  BRAID_TRY(check_output(outputs.logprobs_R, token_count(batch), "log-probs"));
  BRAID_ASSIGN(const Pairs pairs, pairs_of(batch));
  const at::Tensor means_S = per_sample(outputs.logprobs_R, batch.response_lens, true);
  // Log of the odds p / (1 - p); a likelihood of 1 would have none.
  const at::Tensor odds_S = means_S - at::log(-at::expm1(means_S.clamp_max(-1e-6)));
  const at::Tensor nll_P = -rows(means_S, pairs.chosen);
  const at::Tensor margins_P = rows(odds_S, pairs.chosen) - rows(odds_S, pairs.rejected);
  const at::Tensor losses_P = nll_P + options.beta * at::softplus(-margins_P);
  LossResult result;
  result.loss = losses_P.sum() / std::max(denominators.groups, 1.0);
  report(result.metrics, "orpo/loss", losses_P);
  report(result.metrics, "orpo/chosen_nll_mean", nll_P);
  report_margins(result.metrics, "orpo", margins_P);
  return result;
}

// Groups in which all rewards are equal have no pair.
Result<ComputeResult> best_and_worst(const AlgoBatch& batch, const AlgorithmOptions&, AlgoState&) {
  BRAID_ASSIGN(const std::vector<double> rewards, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(const auto groups, compared_groups(batch));
  std::vector<double> preferred(rewards.size(), 0);
  ComputeResult result;
  for (const std::vector<size_t>& group : groups) {
    const auto less = [&](size_t a, size_t b) { return rewards[a] < rewards[b]; };
    const size_t best = *std::max_element(group.begin(), group.end(), less);
    const size_t worst = *std::min_element(group.begin(), group.end(), less);
    const bool differ = rewards[worst] < rewards[best];
    if (differ) preferred[best] = 1, preferred[worst] = -1;
    result.metrics["adv/zero_std_frac"].add(differ ? 0 : 1);
  }
  result.fields["preferred"] = from_doubles(preferred, batch.fields.at("rewards"));
  return result;
}

}  // namespace braid::inline algo
