// The on_error policies and the weighted sum.
#include <limits>

#include "base/log.h"
#include "base/text.h"
#include "reward/reward.h"

namespace braid {
namespace {

using Kind = RewardOutcome::Kind;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<size_t> failed_items(const std::vector<RewardOutcome>& outcomes) {
  std::vector<size_t> items;
  for (size_t i = 0; i < outcomes.size(); ++i)
    if (outcomes[i].kind != Kind::kValue) items.push_back(i);
  return items;
}

Result<std::vector<RewardOutcome>> score_checked(Reward& reward,
                                                 const std::vector<RewardSample>& samples) {
  BRAID_ASSIGN(std::vector<RewardOutcome> outcomes, reward.score(samples));
  BRAID_CHECK(outcomes.size() == samples.size(), "a reward gives one outcome per sample");
  return outcomes;
}

// Scores the failed samples again; returns how many were.
Result<int64_t> retry_failed(Reward& reward, const std::vector<RewardSample>& samples,
                             std::vector<RewardOutcome>* outcomes) {
  const std::vector<size_t> items = failed_items(*outcomes);
  if (items.empty()) return int64_t{0};
  std::vector<RewardSample> again;
  for (const size_t item : items) again.push_back(samples[item]);
  BRAID_ASSIGN(std::vector<RewardOutcome> fresh, score_checked(reward, again));
  for (size_t i = 0; i < items.size(); ++i) (*outcomes)[items[i]] = std::move(fresh[i]);
  return static_cast<int64_t>(items.size());
}

// http has tried `retries` times before it gives an outcome.
int64_t further_tries(const RewardOptions& options) {
  return options.on_error == "retry" && options.type != "http" ? options.retries : 0;
}

const char* kind_name(Kind kind) { return kind == Kind::kTimeout ? "timeout" : "error"; }

std::string describe_failure(const RewardOptions& options, const RewardOutcome& outcome,
                             int64_t sample_id) {
  return cat("reward '", reward_name(options), "', sample ", sample_id, ": ",
             kind_name(outcome.kind), ": ", outcome.error);
}

Status stop_status(const RewardOptions& options, const std::vector<RewardOutcome>& outcomes,
                   const std::vector<RewardSample>& samples) {
  const std::vector<size_t> failed = failed_items(outcomes);
  const size_t first = failed.front();
  return {Code::kStopped, cat(describe_failure(options, outcomes[first], samples[first].sample_id),
                              " (", failed.size(), " of ", samples.size(),
                              " samples failed; on_error: ", options.on_error,
                              "; drop or zero would go on without them)")};
}

void write_logs(const std::string& name, const RewardOutcome& outcome, size_t item, size_t count,
                RewardTotals* totals) {
  for (const auto& [log_name, number] : outcome.logs) {
    auto& column = totals->by_name[cat(name, "/", log_name)];
    column.resize(count, kNone);
    column[item] = number;
  }
}

// Adds one reward's outcomes to the totals.
Status add_reward(const RewardOptions& options, const std::vector<RewardOutcome>& outcomes,
                  const std::vector<RewardSample>& samples, RewardTotals* totals) {
  const bool drop = options.on_error == "drop";
  auto& column = totals->by_name[reward_name(options)];
  column.assign(outcomes.size(), kNone);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const RewardOutcome& outcome = outcomes[i];
    write_logs(reward_name(options), outcome, i, outcomes.size(), totals);
    if (outcome.kind == Kind::kValue) {
      column[i] = outcome.value;
      totals->total[i] += options.weight * outcome.value;
      continue;
    }
    ++(outcome.kind == Kind::kTimeout ? totals->timeouts : totals->errors);
    if (!drop && options.on_error != "zero") return stop_status(options, outcomes, samples);
    log_warning(cat(describe_failure(options, outcome, samples[i].sample_id),
                    drop ? "; sample left out" : "; counted as 0, as on_error: zero says"));
    if (drop) totals->kept[i] = false;
    if (!drop) column[i] = 0;
  }
  return ok_status();
}

}  // namespace

Result<RewardOutcomes> collect_outcomes(std::vector<std::unique_ptr<Reward>>& rewards,
                                        const std::vector<RewardOptions>& options,
                                        const std::vector<RewardSample>& samples) {
  BRAID_CHECK(rewards.size() == options.size(), "one reward per entry of the list");
  RewardOutcomes result;
  result.outcomes.resize(rewards.size());
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (rewards[i] == nullptr) continue;
    BRAID_ASSIGN(result.outcomes[i], score_checked(*rewards[i], samples));
    for (int64_t tries = further_tries(options[i]); tries > 0; --tries) {
      BRAID_ASSIGN(const int64_t again, retry_failed(*rewards[i], samples, &result.outcomes[i]));
      if (again == 0) break;
      result.retried += again;
    }
  }
  return result;
}

Result<RewardTotals> apply_policies(const std::vector<RewardOptions>& options,
                                    const RewardOutcomes& outcomes,
                                    const std::vector<RewardSample>& samples) {
  BRAID_CHECK(outcomes.outcomes.size() == options.size(), "one list of outcomes per reward");
  RewardTotals totals;
  totals.total.assign(samples.size(), 0);
  totals.kept.assign(samples.size(), true);
  totals.retried = outcomes.retried;
  for (size_t i = 0; i < options.size(); ++i) {
    if (outcomes.outcomes[i].empty()) continue;
    BRAID_TRY(add_reward(options[i], outcomes.outcomes[i], samples, &totals));
  }
  for (size_t i = 0; i < samples.size(); ++i)
    if (!totals.kept[i]) totals.total[i] = kNone;
  return totals;
}

Result<RewardTotals> score_all(std::vector<std::unique_ptr<Reward>>& rewards,
                               const std::vector<RewardOptions>& options,
                               const std::vector<RewardSample>& samples) {
  BRAID_ASSIGN(const RewardOutcomes outcomes, collect_outcomes(rewards, options, samples));
  return apply_policies(options, outcomes, samples);
}

}  // namespace braid
