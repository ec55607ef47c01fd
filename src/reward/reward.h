// Rewards: what a response is worth, from rules, an HTTP service, a child process or a Python
// function. A result is a value, a timeout or an error; nothing turns a failure into 0 unless the
// configuration says so. A Reward is used by one thread at a time; it may use threads inside.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "config/options.h"

namespace braid::inline reward {

struct RewardSample {
  int64_t sample_id = 0;
  int64_t group = 0;  // samples of one prompt share it and stand one after another
  std::string prompt, response;
  Json messages;  // the prompt as a conversation; null where the data has text
  std::vector<int32_t> prompt_ids, response_ids;
  bool truncated = false;
  Json extra = Json::object();  // every other field of the sample's JSONL line, "label" included
};

struct RewardOutcome {
  // kAbsent: the reward says that it does not apply to the sample. kSkipped: nobody asked, since
  // the scoring ended before.
  enum class Kind { kValue, kAbsent, kTimeout, kError, kSkipped };
  Kind kind = Kind::kSkipped;
  double value = 0;                    // meaningful for kValue only; finite
  std::string error;                   // what went wrong, one line; empty for kValue
  std::map<std::string, double> logs;  // further numbers that the reward reported for this sample
};

// A timeout or an error.
bool is_failure(const RewardOutcome& outcome);

// What a scoring needs besides its samples. The functions are called from several threads.
struct ScoreContext {
  int64_t step = 0, total_steps = 0;  // Python functions see them as trainer_state
  // Asked about ten times a second; once it says true, scoring ends. Empty: never.
  std::function<bool()> interrupted;
  double report_after_s = 10;  // until a line says how many samples are out; then at growing pauses
  bool show_everything = false;  // go on after a failure under on_error: stop
};

using RewardOptions = RewardConfig;

// What a reward asks and tells while it scores. Called from several threads.
struct ScoreWatch {
  int64_t step = 0, total_steps = 0;
  std::function<bool()> ended;                       // true: leave the rest out, as kSkipped
  std::function<void(const RewardOutcome&)> scored;  // one more sample
};

// Asks nothing and tells nothing.
ScoreWatch quiet_watch();

class Reward {
 public:
  virtual ~Reward() = default;
  // One outcome per sample, in order. A failed Status means that the reward itself cannot be used
  // (its program is missing, say); a sample that could not be scored is an outcome.
  virtual Result<std::vector<RewardOutcome>> score(const std::vector<RewardSample>& samples,
                                                   const ScoreWatch& watch) = 0;
  // The samples that are scored together, as indices: one that failed is scored again with the rest
  // of its batch.
  virtual std::vector<std::vector<size_t>> batches(const std::vector<RewardSample>& samples) const;
};

// The column of the metrics: options.name, or the type where the name is empty.
std::string reward_name(const RewardOptions& options);

// The keys that entries of a type read; empty for an unknown type.
std::vector<std::string> reward_keys(const std::string& type);

// Checks one entry of the list without starting anything.
Status check_reward(const RewardOptions& options);

// Checks the whole list: every entry, and that names differ.
Status check_rewards(const std::vector<RewardOptions>& options);

// Makes the reward of one entry; a python reward starts its first worker, so that a missing file or
// function shows here. Type model is an error: the engine scores with models.
Result<std::unique_ptr<Reward>> make_reward(const RewardOptions& options);

// Makes all rewards of a list in its order, with a null pointer for each of type model.
Result<std::vector<std::unique_ptr<Reward>>> make_rewards(
    const std::vector<RewardOptions>& options);

// outcomes[reward][sample] after retries; empty for a null reward.
struct RewardOutcomes {
  std::vector<std::vector<RewardOutcome>> outcomes;
  int64_t retried = 0;  // samples scored again under on_error: retry
};

struct RewardTotals {
  std::vector<double> total;  // weighted sum; NaN where the sample was dropped
  std::vector<bool> kept;     // false: leave the sample out (on_error: drop, or no reward applies)
  // Values by reward name, and by "name/log" for further numbers; NaN where there is none.
  std::map<std::string, std::vector<double>> by_name;
  int64_t timeouts = 0, errors = 0;  // final outcomes, over all rewards
  int64_t absent = 0;                // samples to which no reward applies
  int64_t retried = 0;
};

// Scores samples with every reward of the list, all rewards at the same time; under on_error: retry
// failed batches are scored again, `retries` times at most. The first failure under on_error: stop
// ends the scoring. kStopped where context.interrupted ended it. REQUIRES: rewards and options are
// aligned; a null reward is skipped.
Result<RewardOutcomes> collect_outcomes(std::vector<std::unique_ptr<Reward>>& rewards,
                                        const std::vector<RewardOptions>& options,
                                        const std::vector<RewardSample>& samples,
                                        const ScoreContext& context = {});

// Applies on_error and the weights. A reward that does not apply to a sample adds nothing to its
// total; a sample to which none applies is left out. kStopped, with reward and sample in the
// message, where a failure meets on_error: stop or is left over by retry.
Result<RewardTotals> apply_policies(const std::vector<RewardOptions>& options,
                                    const RewardOutcomes& outcomes,
                                    const std::vector<RewardSample>& samples);

// collect_outcomes, then apply_policies.
Result<RewardTotals> score_all(std::vector<std::unique_ptr<Reward>>& rewards,
                               const std::vector<RewardOptions>& options,
                               const std::vector<RewardSample>& samples,
                               const ScoreContext& context = {});

}  // namespace braid::inline reward
