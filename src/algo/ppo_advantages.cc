#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/gae.h"
#include "algo/statistics.h"
#include "algo/token_rewards.h"

namespace braid::inline algo {
namespace {

std::vector<double> errors_of(const std::vector<double>& values,
                              const std::vector<double>& returns) {
  std::vector<double> out(values.size());
  for (size_t t = 0; t < values.size(); ++t) out[t] = returns[t] - values[t];
  return out;
}

}  // namespace

Result<ComputeResult> ppo_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                     AlgoState& state) {
  ComputeResult result;
  BRAID_ASSIGN(const std::vector<double> scores, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(const std::vector<double> values, token_numbers(batch, "values"));
  BRAID_ASSIGN(const std::vector<double> rewards,
               token_rewards(batch, scores, options, state, result));
  GaeResult estimate = gae(rewards, values, sample_begins(batch), options.gamma, options.lam);
  result.metrics["critic/value_mean"] = distribution(values);
  result.sums.returns = distribution(estimate.returns);
  result.metrics["critic/return_mean"] = result.sums.returns;
  result.sums.errors = distribution(errors_of(values, estimate.returns));
  add_explained_variance(result.metrics, sums_to_use(batch, result.sums));
  BRAID_TRY(normalize_tokens(batch, options.normalize_advantages, result, estimate.advantages));
  add_advantage_metrics(result.metrics, estimate.advantages);
  const at::Tensor& like = batch.fields.at("values");
  result.fields["advantages"] = from_doubles(estimate.advantages, like);
  result.fields["returns"] = from_doubles(estimate.returns, like);
  return result;
}

}  // namespace braid::inline algo
