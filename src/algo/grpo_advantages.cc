#include <cmath>

#include "algo/batch.h"
#include "algo/functions.h"
#include "algo/statistics.h"
#include "base/text.h"

namespace braid {
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
  const double batch_std = std::sqrt(moments(rewards).variance);
  std::vector<double> advantages(rewards.size());
  for (const auto& members : group_members(batch.groups)) {
    if (members.size() < 2) {
      return invalid_input(cat("group ", batch.groups[members[0]],
                               " has one sample; group statistics need at least two: set "
                               "rollout.samples_per_prompt to 2 or more"));
    }
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
  if (batch.groups.size() != rewards.size()) {
    return invalid_input(cat("the rollout has ", rewards.size(), " samples but ",
                             batch.groups.size(), " group ids"));
  }
  ComputeResult result;
  BRAID_ASSIGN(const std::vector<double> advantages,
               sample_advantages(batch, rewards, options.normalize_advantages, result.metrics));
  result.metrics["reward/total_mean"] = distribution(rewards);
  add_advantage_metrics(result.metrics, advantages);
  std::vector<double> tokens;
  for (size_t s = 0; s < advantages.size(); ++s) {
    tokens.insert(tokens.end(), batch.response_lens[s], advantages[s]);
  }
  result.fields["advantages"] = from_doubles(tokens, batch.fields.at("rewards"));
  return result;
}

}  // namespace braid
