#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/gae.h"
#include "algo/statistics.h"
#include "algo/token_rewards.h"

namespace braid::inline algo {

Result<ComputeResult> ppo_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                     AlgoState& state) {
  ComputeResult result;
  BRAID_ASSIGN(const std::vector<double> scores, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(const std::vector<double> values, token_numbers(batch, "values"));
  BRAID_ASSIGN(const std::vector<double> rewards,
               token_rewards(batch, scores, options, state, result.metrics));
  GaeResult estimate = gae(rewards, values, sample_begins(batch), options.gamma, options.lam);
  result.metrics["critic/value_mean"] = distribution(values);
  result.metrics["critic/return_mean"] = distribution(estimate.returns);
  add_explained_variance(result.metrics, values, estimate.returns);
  BRAID_TRY(normalize_tokens(batch, options.normalize_advantages, estimate.advantages));
  add_advantage_metrics(result.metrics, estimate.advantages);
  const at::Tensor& like = batch.fields.at("values");
  result.fields["advantages"] = from_doubles(estimate.advantages, like);
  result.fields["returns"] = from_doubles(estimate.returns, like);
  return result;
}

}  // namespace braid::inline algo
