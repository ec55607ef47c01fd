#include "config/stall_limit.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline config {
namespace {

constexpr double kLeastLimit_s = 300;
constexpr double kLongestSteps = 10;
constexpr double kLeastWait_s = 3600;
constexpr double kAnswers = 2;

// Until a sample has an outcome, which may be that there was none in time. Seconds; 0 for a reward
// that is computed here.
double longest_answer_s(const RewardConfig& reward) {
  if (reward.type == "http") return reward.timeout_s + reward.outage_s;
  return reward.type == "command" || reward.type == "python" ? reward.timeout_s : 0;
}

// At least so long that all rewards may answer.
double with_answers_s(const Config& config, double least_s) {
  for (const RewardConfig& reward : config.reward)
    least_s = std::max(least_s, kAnswers * longest_answer_s(reward));
  return least_s;
}

// `meanwhile`: what comes of an answer that takes longer.
Status check_limit(const Config& config, const char* key, double limit_s, const char* meanwhile) {
  for (size_t i = 0; limit_s > 0 && i < config.reward.size(); ++i) {
    const RewardConfig& reward = config.reward[i];
    const double answer_s = longest_answer_s(reward);
    if (answer_s < limit_s) continue;
    const bool http = reward.type == "http";
    return invalid_input(cat(key, ": ", limit_s, " s, and reward[", i, "] may take ", answer_s,
                             " s for an answer (timeout_s", http ? " + outage_s" : "",
                             "), in which ", meanwhile, "; set a larger ", key, ", or a smaller ",
                             http ? "timeout_s and outage_s" : "timeout_s", " of the reward"));
  }
  return ok_status();
}

}  // namespace

double stall_limit_s(const Config& config, double longest_step_s) {
  if (config.runtime.stall_s > 0) return config.runtime.stall_s;
  return with_answers_s(config, std::max(kLeastLimit_s, kLongestSteps * longest_step_s));
}

double wait_limit_s(const Config& config) {
  return config.runtime.wait_s > 0 ? config.runtime.wait_s : with_answers_s(config, kLeastWait_s);
}

Status check_stall_limit(const Config& config) {
  BRAID_TRY(check_limit(config, "runtime.stall_s", config.runtime.stall_s,
                        "its rank makes no progress and would count as stuck"));
  return check_limit(config, "runtime.wait_s", config.runtime.wait_s,
                     "the other ranks wait for its rank and would give it up");
}

}  // namespace braid::inline config
