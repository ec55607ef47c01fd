#include <map>

#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/statistics.h"
#include "algo/token_rewards.h"

namespace braid::inline algo {
namespace {

// Returns of the scores with the penalty, normalized.
Result<ComputeResult> advantages_of(const AlgoBatch& batch, const std::vector<double>& scores,
                                    const AlgorithmOptions& options, AlgoState& state) {
  ComputeResult result;
  BRAID_ASSIGN(const std::vector<double> rewards,
               token_rewards(batch, scores, options, state, result));
  std::vector<double> advantages = returns_to_go(rewards, sample_begins(batch), options.gamma);
  BRAID_TRY(normalize_tokens(batch, options.normalize_advantages, result, advantages));
  add_advantage_metrics(result.metrics, advantages);
  result.fields["advantages"] = from_doubles(advantages, batch.fields.at("rewards"));
  return result;
}

// The mean score of each group, also of its samples that the batch lacks.
Result<std::map<int64_t, double>> group_means(const AlgoBatch& batch,
                                              const std::vector<double>& scores) {
  const bool whole = batch.step_rewards.empty();
  const std::vector<double>& all = whole ? scores : batch.step_rewards;
  const std::vector<int64_t>& groups = whole ? batch.groups : batch.step_groups;
  std::map<int64_t, double> out;
  BRAID_ASSIGN(const auto compared, whole ? compared_groups(batch) : compared_groups(groups));
  for (const std::vector<size_t>& members : compared) {
    double sum = 0;
    for (const size_t s : members) sum += all[s];
    out[groups[members.front()]] = sum / static_cast<double>(members.size());
  }
  return out;
}

}  // namespace

Result<ComputeResult> reinforce_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                           AlgoState& state) {
  BRAID_ASSIGN(const std::vector<double> scores, sample_numbers(batch, "rewards"));
  return advantages_of(batch, scores, options, state);
}

Result<ComputeResult> reinforce_baseline_advantages(const AlgoBatch& batch,
                                                    const AlgorithmOptions& options,
                                                    AlgoState& state) {
  BRAID_ASSIGN(const std::vector<double> scores, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(const auto means, group_means(batch, scores));
  std::vector<double> centred = scores;
  for (size_t s = 0; s < scores.size(); ++s) centred[s] -= means.at(batch.groups[s]);
  BRAID_ASSIGN(ComputeResult result, advantages_of(batch, centred, options, state));
  // What the samples earn, not how they compare.
  Metric earned = distribution(scores);
  if (const auto cost = result.metrics.find("reward/kl_penalty_mean"); cost != result.metrics.end())
    earned.sum -= cost->second.sum;
  result.metrics["reward/total_mean"] = earned;
  return result;
}

}  // namespace braid::inline algo
