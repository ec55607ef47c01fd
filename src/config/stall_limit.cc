#include "config/stall_limit.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline config {
namespace {

constexpr double kLeastLimit_s = 300;
constexpr double kLongestSteps = 10;
constexpr double kAnswers = 2;

// Until a sample has an outcome, which may be that there was none in time. Seconds; 0 for a reward
// that is computed here.
double longest_answer_s(const RewardConfig& reward) {
  if (reward.type == "http") return reward.timeout_s + reward.outage_s;
  return reward.type == "command" || reward.type == "python" ? reward.timeout_s : 0;
}

}  // namespace

double stall_limit_s(const Config& config, double longest_step_s) {
  if (config.runtime.stall_s > 0) return config.runtime.stall_s;
  double out = std::max(kLeastLimit_s, kLongestSteps * longest_step_s);
  for (const RewardConfig& reward : config.reward)
    out = std::max(out, kAnswers * longest_answer_s(reward));
  return out;
}

Status check_stall_limit(const Config& config) {
  const double limit_s = config.runtime.stall_s;
  for (size_t i = 0; limit_s > 0 && i < config.reward.size(); ++i) {
    const RewardConfig& reward = config.reward[i];
    const double answer_s = longest_answer_s(reward);
    if (answer_s < limit_s) continue;
    const bool http = reward.type == "http";
    return invalid_input(
        cat("runtime.stall_s: ", limit_s, " s, and reward[", i, "] may take ", answer_s,
            " s for an answer (timeout_s", http ? " + outage_s" : "",
            "), in which its rank makes no progress and would count as stuck; set a larger "
            "runtime.stall_s, or a smaller ",
            http ? "timeout_s and outage_s" : "timeout_s", " of the reward"));
  }
  return ok_status();
}

}  // namespace braid::inline config
