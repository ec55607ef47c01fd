#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/statistics.h"
#include "algo/token_rewards.h"

namespace braid::inline algo {

Result<ComputeResult> remax_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                       AlgoState& state) {
  BRAID_ASSIGN(const std::vector<double> scores, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(const std::vector<double> greedy, sample_numbers(batch, "greedy_rewards"));
  ComputeResult result;
  BRAID_ASSIGN(const std::vector<double> rewards,
               token_rewards(batch, scores, options, state, result));
  std::vector<double> advantages = returns_to_go(rewards, sample_begins(batch), options.gamma);
  const std::vector<double> baselines = per_token(batch, greedy);
  for (size_t t = 0; t < advantages.size(); ++t) advantages[t] -= baselines[t];
  BRAID_TRY(normalize_tokens(batch, options.normalize_advantages, result, advantages));
  result.metrics["reward/greedy_mean"] = distribution(greedy);
  add_advantage_metrics(result.metrics, advantages);
  result.fields["advantages"] = from_doubles(advantages, batch.fields.at("rewards"));
  return result;
}

}  // namespace braid::inline algo
