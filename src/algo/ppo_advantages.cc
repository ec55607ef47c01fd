#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/gae.h"
#include "algo/kl.h"
#include "algo/statistics.h"
#include "base/text.h"

namespace braid {
namespace {

struct Inputs {
  std::vector<double> scores;  // [S]
  std::vector<double> old_logprobs, ref_logprobs, values;
  std::vector<int64_t> begins;
};

Result<Inputs> read_inputs(const AlgoBatch& batch, const AlgorithmOptions& options) {
  for (size_t s = 0; s < batch.response_lens.size(); ++s) {
    if (batch.response_lens[s] < 1) {
      return invalid_input(cat("sample ", s, " of the rollout has an empty response"));
    }
  }
  Inputs in;
  BRAID_ASSIGN(in.scores, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(in.old_logprobs, token_numbers(batch, "old_logprobs"));
  BRAID_ASSIGN(in.values, token_numbers(batch, "values"));
  if (options.kl.coef > 0) {
    BRAID_ASSIGN(in.ref_logprobs, token_numbers(batch, "ref_logprobs"));
  }
  in.begins = sample_begins(batch);
  return in;
}

// Subtracts the KL penalty from the rewards and lets the controller see the KL.
void penalize(const Inputs& in, const KlOptions& kl, AlgoState& state, std::vector<double>& rewards,
              Metrics& metrics) {
  const double coef = kl_coefficient(kl, state);
  double measured = 0;
  for (size_t s = 0; s + 1 < in.begins.size(); ++s) {
    double penalty = 0;
    for (int64_t t = in.begins[s]; t < in.begins[s + 1]; ++t) {
      measured += in.old_logprobs[t] - in.ref_logprobs[t];
      const double cost = coef * kl_estimate(kl.estimator, in.old_logprobs[t], in.ref_logprobs[t]);
      rewards[t] -= cost;
      penalty += cost;
    }
    metrics["reward/kl_penalty_mean"].add(penalty);
  }
  metrics["kl/coef"].add(coef);
  const auto sequences = static_cast<double>(in.scores.size());
  update_kl_coefficient(kl, measured / sequences, sequences, state);
}

std::vector<double> token_rewards(const Inputs& in, const AlgorithmOptions& options,
                                  AlgoState& state, Metrics& metrics) {
  std::vector<double> rewards(in.values.size(), 0);
  for (size_t s = 0; s < in.scores.size(); ++s) rewards[in.begins[s + 1] - 1] = in.scores[s];
  if (options.kl.coef > 0 && options.kl.in == "reward") {
    add_kl_metrics(metrics, in.old_logprobs, in.ref_logprobs);
    penalize(in, options.kl, state, rewards, metrics);
  }
  for (size_t s = 0; s < in.scores.size(); ++s) {
    double total = 0;
    for (int64_t t = in.begins[s]; t < in.begins[s + 1]; ++t) total += rewards[t];
    metrics["reward/total_mean"].add(total);
  }
  if (options.whiten_rewards) whiten(rewards, true);
  return rewards;
}

// Whitens the tokens of each group by themselves.
void whiten_groups(const AlgoBatch& batch, const std::vector<int64_t>& begins,
                   std::vector<double>& advantages) {
  for (const auto& members : group_members(batch.groups)) {
    std::vector<double> tokens;
    for (const size_t s : members) {
      tokens.insert(tokens.end(), advantages.begin() + begins[s],
                    advantages.begin() + begins[s + 1]);
    }
    whiten(tokens, false);
    auto next = tokens.begin();
    for (const size_t s : members) {
      std::copy(next, next + batch.response_lens[s], advantages.begin() + begins[s]);
      next += batch.response_lens[s];
    }
  }
}

}  // namespace

Result<ComputeResult> ppo_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                     AlgoState& state) {
  BRAID_ASSIGN(const Inputs in, read_inputs(batch, options));
  ComputeResult result;
  const std::vector<double> rewards = token_rewards(in, options, state, result.metrics);
  GaeResult estimate = gae(rewards, in.values, in.begins, options.gamma, options.lam);
  result.metrics["critic/value_mean"] = distribution(in.values);
  result.metrics["critic/return_mean"] = distribution(estimate.returns);
  add_explained_variance(result.metrics, in.values, estimate.returns);
  if (options.normalize_advantages == "batch") whiten(estimate.advantages, false);
  if (options.normalize_advantages == "group") {
    if (batch.groups.size() != batch.response_lens.size()) {
      return invalid_input("normalize_advantages group needs the group of every sample");
    }
    whiten_groups(batch, in.begins, estimate.advantages);
  }
  add_advantage_metrics(result.metrics, estimate.advantages);
  const at::Tensor& like = batch.fields.at("values");
  result.fields["advantages"] = from_doubles(estimate.advantages, like);
  result.fields["returns"] = from_doubles(estimate.returns, like);
  return result;
}

}  // namespace braid
