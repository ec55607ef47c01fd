// The on_error policies and the weighted sum.
#include <limits>
#include <map>

#include "base/log.h"
#include "base/text.h"
#include "reward/reward.h"

namespace braid::inline reward {
namespace {

using Kind = RewardOutcome::Kind;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kShownErrors = 3;  // different ones of a reward, per step

const char* failure_name(Kind kind) { return kind == Kind::kTimeout ? "timeout" : "error"; }

std::string describe_failure(const RewardOptions& options, const RewardOutcome& outcome,
                             int64_t sample_id) {
  return cat("reward '", reward_name(options), "', sample ", sample_id, ": ",
             failure_name(outcome.kind), ": ", outcome.error);
}

bool may_fail(const RewardOptions& options) {
  return options.on_error == "drop" || options.on_error == "zero";
}

// The first failure of a reward that must not fail; success where there is none.
Status check_failures(const RewardOptions& options, const std::vector<RewardOutcome>& outcomes,
                      const std::vector<RewardSample>& samples) {
  size_t failed = 0, asked = 0, first = outcomes.size();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    asked += outcomes[i].kind != Kind::kSkipped;
    if (!is_failure(outcomes[i])) continue;
    ++failed;
    first = std::min(first, i);
  }
  if (failed == 0) return ok_status();
  return {Code::kStopped,
          cat(describe_failure(options, outcomes[first], samples[first].sample_id), " (", failed,
              " of ", asked, asked < outcomes.size() ? " scored samples failed" : " samples failed",
              "; on_error: ", options.on_error, "; drop or zero would go on without them)")};
}

// One warning per text of failure, with the first sample and the number of samples.
void warn_of_failures(const RewardOptions& options, const std::vector<RewardOutcome>& outcomes,
                      const std::vector<RewardSample>& samples) {
  std::map<std::string, std::pair<size_t, size_t>> by_text;  // first sample, count
  std::vector<std::string> order;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (!is_failure(outcomes[i])) continue;
    const auto [found, fresh] = by_text.emplace(outcomes[i].error, std::make_pair(i, size_t{0}));
    if (fresh) order.push_back(outcomes[i].error);
    ++found->second.second;
  }
  const char* then =
      options.on_error == "drop" ? "left out" : "counted as 0, as on_error: zero says";
  size_t others = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& [first, count] = by_text.at(order[i]);
    if (i >= kShownErrors) others += count;
    if (i < kShownErrors)
      log_warning(cat(describe_failure(options, outcomes[first], samples[first].sample_id),
                      count > 1 ? cat(" (and ", count - 1, " more samples)") : "", "; ", then));
  }
  if (others > 0)
    log_warning(cat("reward '", reward_name(options), "': ", others,
                    " more samples failed otherwise; ", then));
}

void write_logs(const std::string& name, const RewardOutcome& outcome, size_t item, size_t count,
                RewardTotals* totals) {
  for (const auto& [log_name, number] : outcome.logs) {
    auto& column = totals->by_name[cat(name, "/", log_name)];
    column.resize(count, kNone);
    column[item] = number;
  }
}

// Adds one reward's outcomes to the totals; has[i] becomes true where it gave sample i a number.
void add_reward(const RewardOptions& options, const std::vector<RewardOutcome>& outcomes,
                RewardTotals* totals, std::vector<bool>* has) {
  const bool drop = options.on_error == "drop";
  auto& column = totals->by_name[reward_name(options)];
  column.assign(outcomes.size(), kNone);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const RewardOutcome& outcome = outcomes[i];
    write_logs(reward_name(options), outcome, i, outcomes.size(), totals);
    if (is_failure(outcome)) {
      ++(outcome.kind == Kind::kTimeout ? totals->timeouts : totals->errors);
      if (drop) totals->kept[i] = false;
    }
    if (outcome.kind == Kind::kAbsent || (drop && is_failure(outcome))) continue;
    column[i] = is_failure(outcome) ? 0 : outcome.value;
    totals->total[i] += options.weight * column[i];
    (*has)[i] = true;
  }
}

// Samples that no reward applies to have no total.
void leave_out_unscored(const std::vector<RewardSample>& samples, const std::vector<bool>& has,
                        RewardTotals* totals) {
  int64_t first = -1;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!totals->kept[i] || has[i]) continue;
    totals->kept[i] = false;
    if (totals->absent++ == 0) first = samples[i].sample_id;
  }
  if (totals->absent > 0)
    log_warning(cat("no reward applies to ", totals->absent, " of ", samples.size(),
                    " samples (the first is sample ", first,
                    "; every function returned None); left out"));
}

}  // namespace

Result<RewardTotals> apply_policies(const std::vector<RewardOptions>& options,
                                    const RewardOutcomes& outcomes,
                                    const std::vector<RewardSample>& samples) {
  BRAID_CHECK(outcomes.outcomes.size() == options.size(), "one list of outcomes per reward");
  RewardTotals totals;
  totals.total.assign(samples.size(), 0);
  totals.kept.assign(samples.size(), true);
  totals.retried = outcomes.retried;
  std::vector<bool> has(samples.size(), false);
  bool asked = false;
  for (size_t i = 0; i < options.size(); ++i)
    if (!may_fail(options[i])) BRAID_TRY(check_failures(options[i], outcomes.outcomes[i], samples));
  for (size_t i = 0; i < options.size(); ++i) {
    if (outcomes.outcomes[i].empty()) continue;
    asked = true;
    warn_of_failures(options[i], outcomes.outcomes[i], samples);
    add_reward(options[i], outcomes.outcomes[i], &totals, &has);
  }
  if (asked) leave_out_unscored(samples, has, &totals);
  for (size_t i = 0; i < samples.size(); ++i)
    if (!totals.kept[i]) totals.total[i] = kNone;
  return totals;
}

Result<RewardTotals> score_all(std::vector<std::unique_ptr<Reward>>& rewards,
                               const std::vector<RewardOptions>& options,
                               const std::vector<RewardSample>& samples,
                               const ScoreContext& context) {
  BRAID_ASSIGN(const RewardOutcomes outcomes, collect_outcomes(rewards, options, samples, context));
  return apply_policies(options, outcomes, samples);
}

}  // namespace braid::inline reward
