#include <cmath>

#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/statistics.h"

namespace braid::inline algo {
namespace {

// Added to the standard deviation, as in TRL's GRPO; it bounds the advantages of groups that are
// nearly unanimous.
constexpr double kStdEpsilon = 1e-4;

std::vector<double> pick(const std::vector<double>& values, const std::vector<size_t>& indices) {
  std::vector<double> picked;
  for (const size_t i : indices) picked.push_back(values[i]);
  return picked;
}

// Advantage of each sample.
Result<std::vector<double>> sample_advantages(const AlgoBatch& batch,
                                              const std::vector<double>& rewards,
                                              const std::string& normalize, Metrics& metrics) {
  const bool whole = batch.step_rewards.empty();
  const double batch_std = std::sqrt(moments(whole ? rewards : batch.step_rewards).variance);
  std::vector<double> advantages(rewards.size());
  BRAID_ASSIGN(const auto groups, compared_groups(batch));
  for (const std::vector<size_t>& members : groups) {
    const Moments group = moments(pick(rewards, members));
    const double group_std = std::sqrt(group.variance);
    const double spread = normalize == "group" ? group_std : batch_std;
    const double divisor = normalize == "none" ? 1 : spread + kStdEpsilon;
    for (const size_t i : members) advantages[i] = (rewards[i] - group.mean) / divisor;
    metrics["adv/zero_std_frac"].add(group_std == 0 ? 1 : 0);
  }
  return advantages;
}

}  // namespace

Result<ComputeResult> grpo_advantages(const AlgoBatch& batch, const AlgorithmOptions& options,
                                      AlgoState&) {
  BRAID_ASSIGN(const std::vector<double> rewards, sample_numbers(batch, "rewards"));
  ComputeResult result;
  BRAID_ASSIGN(const std::vector<double> advantages,
               sample_advantages(batch, rewards, options.normalize_advantages, result.metrics));
  result.metrics["reward/total_mean"] = distribution(rewards);
  add_advantage_metrics(result.metrics, advantages);
  result.fields["advantages"] =
      from_doubles(per_token(batch, advantages), batch.fields.at("rewards"));
  return result;
}

}  // namespace braid::inline algo
