#include "algo/token_rewards.h"

#include <algorithm>

#include "algo/batch.h"
#include "algo/kl.h"
#include "algo/statistics.h"
#include "base/text.h"

namespace braid::inline algo {
namespace {

Status check_responses(const AlgoBatch& batch) {
  for (size_t s = 0; s < batch.response_lens.size(); ++s) {
    if (batch.response_lens[s] < 1) {
      return invalid_input(cat("sample ", s, " of the rollout has an empty response"));
    }
  }
  return {};
}

// Subtracts the KL penalty from the rewards.
Status penalize(const AlgoBatch& batch, const KlOptions& kl, const AlgoState& state,
                std::vector<double>& rewards, ComputeResult& result) {
  Metrics& metrics = result.metrics;
  BRAID_ASSIGN(const std::vector<double> old, token_numbers(batch, "old_logprobs"));
  BRAID_ASSIGN(const std::vector<double> ref, token_numbers(batch, "ref_logprobs"));
  add_kl_metrics(metrics, old, ref);
  const std::vector<int64_t> begins = sample_begins(batch);
  const double coef = kl_coefficient(kl, state);
  double measured = 0;
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    double penalty = 0;
    for (int64_t t = begins[s]; t < begins[s + 1]; ++t) {
      measured += old[t] - ref[t];
      const double cost = coef * kl_estimate(kl.estimator, old[t], ref[t]);
      rewards[t] -= cost;
      penalty += cost;
    }
    metrics["reward/kl_penalty_mean"].add(penalty);
  }
  metrics["kl/coef"].add(coef);
  result.sums.kl.sum = measured;
  result.sums.kl.count = static_cast<double>(batch.response_lens.size());
  return {};
}

// Whitens the tokens of each group by themselves.
void whiten_groups(const AlgoBatch& batch, std::vector<double>& advantages) {
  const std::vector<int64_t> begins = sample_begins(batch);
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

void note_step(const StepSums& of_step, const AlgorithmOptions& options, AlgoState& state) {
  const Metric& kl = of_step.kl;
  if (kl.count > 0) update_kl_coefficient(options.kl, kl.mean(), kl.count, state);
}

Result<std::vector<double>> token_rewards(const AlgoBatch& batch, const std::vector<double>& scores,
                                          const AlgorithmOptions& options, AlgoState& state,
                                          ComputeResult& result) {
  BRAID_TRY(check_responses(batch));
  const std::vector<int64_t> begins = sample_begins(batch);
  std::vector<double> rewards(begins.back(), 0);
  for (size_t s = 0; s < scores.size(); ++s) rewards[begins[s + 1] - 1] = scores[s];
  if (options.kl.coef > 0 && options.kl.in == "reward") {
    BRAID_TRY(penalize(batch, options.kl, state, rewards, result));
    if (!batch.step_sums) note_step(result.sums, options, state);
  }
  for (size_t s = 0; s < scores.size(); ++s) {
    double total = 0;
    for (int64_t t = begins[s]; t < begins[s + 1]; ++t) total += rewards[t];
    result.metrics["reward/total_mean"].add(total);
  }
  if (options.whiten_rewards) whiten(rewards, true);
  return rewards;
}

std::vector<double> returns_to_go(const std::vector<double>& rewards,
                                  const std::vector<int64_t>& begins, double gamma) {
  std::vector<double> returns(rewards.size());
  for (size_t s = 0; s + 1 < begins.size(); ++s) {
    double later = 0;
    for (int64_t t = begins[s + 1] - 1; t >= begins[s]; --t) {
      later = rewards[t] + gamma * later;
      returns[t] = later;
    }
  }
  return returns;
}

Status normalize_tokens(const AlgoBatch& batch, const std::string& normalize, ComputeResult& result,
                        std::vector<double>& advantages) {
  if (normalize == "batch") {
    result.sums.advantages = distribution(advantages);
    whiten(advantages, sums_to_use(batch, result.sums).advantages);
  }
  if (normalize != "group") return {};
  if (batch.groups.size() != batch.response_lens.size()) {
    return invalid_input("normalize_advantages group needs the group of every sample");
  }
  whiten_groups(batch, advantages);
  return {};
}

}  // namespace braid::inline algo
