#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/statistics.h"
#include "algo/token_rewards.h"

namespace braid::inline algo {

Result<ComputeResult> distill_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                         AlgoState&) {
  BRAID_ASSIGN(const std::vector<double> scores, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(const std::vector<double> old, token_numbers(batch, "old_logprobs"));
  BRAID_ASSIGN(const std::vector<double> teacher, token_numbers(batch, "teacher_logprobs"));
  const std::vector<int64_t> begins = sample_begins(batch);
  ComputeResult result;
  std::vector<double> rewards;
  for (size_t t = 0; t < old.size(); ++t) {
    rewards.push_back(options.kl.coef * (teacher[t] - old[t]));
    result.metrics["distill/reverse_kl"].add(old[t] - teacher[t]);
  }
  for (size_t s = 0; s < scores.size(); ++s)
    if (begins[s] < begins[s + 1]) rewards[begins[s + 1] - 1] += scores[s];
  std::vector<double> advantages = returns_to_go(rewards, begins, options.gamma);
  BRAID_TRY(normalize_tokens(batch, options.normalize_advantages, result, advantages));
  add_advantage_metrics(result.metrics, advantages);
  result.fields["advantages"] = from_doubles(advantages, batch.fields.at("rewards"));
  return result;
}

}  // namespace braid::inline algo
