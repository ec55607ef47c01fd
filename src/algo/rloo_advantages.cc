#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/statistics.h"
#include "algo/token_rewards.h"

namespace braid::inline algo {
namespace {

// Each sample's total minus the mean of the others of its group.
std::vector<double> left_out(const std::vector<double>& totals,
                             const std::vector<std::vector<size_t>>& groups) {
  std::vector<double> out(totals.size());
  for (const std::vector<size_t>& members : groups) {
    double sum = 0;
    for (const size_t s : members) sum += totals[s];
    for (const size_t s : members)
      out[s] = totals[s] - (sum - totals[s]) / static_cast<double>(members.size() - 1);
  }
  return out;
}

}  // namespace

Result<ComputeResult> rloo_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                      AlgoState& state) {
  ComputeResult result;
  BRAID_ASSIGN(const std::vector<double> scores, sample_numbers(batch, "rewards"));
  BRAID_ASSIGN(const auto groups, compared_groups(batch));
  BRAID_ASSIGN(const std::vector<double> rewards,
               token_rewards(batch, scores, options, state, result));
  const std::vector<int64_t> begins = sample_begins(batch);
  std::vector<double> totals(scores.size(), 0);
  for (size_t s = 0; s < totals.size(); ++s)
    for (int64_t t = begins[s]; t < begins[s + 1]; ++t) totals[s] += rewards[t];
  std::vector<double> advantages = per_token(batch, left_out(totals, groups));
  BRAID_TRY(normalize_tokens(batch, options.normalize_advantages, result, advantages));
  add_advantage_metrics(result.metrics, advantages);
  result.fields["advantages"] = from_doubles(advantages, batch.fields.at("rewards"));
  return result;
}

}  // namespace braid::inline algo
