// Helpers for the tests of this module.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reward/reward.h"

namespace braid::inline reward {

inline RewardSample make_sample(int64_t id, std::string response, Json extra = Json::object()) {
  RewardSample sample;
  sample.sample_id = id;
  sample.prompt = "Q" + std::to_string(id) + " ";
  sample.response = std::move(response);
  sample.extra = std::move(extra);
  return sample;
}

// Outcomes of a reward made from options; a failure to make or run it fails the test.
inline std::vector<RewardOutcome> score_with(const RewardOptions& options,
                                             const std::vector<RewardSample>& samples) {
  auto reward = make_reward(options);
  EXPECT_TRUE(reward.ok()) << reward.status().message();
  if (!reward.ok()) return std::vector<RewardOutcome>(samples.size());
  auto outcomes = (*reward)->score(samples, quiet_watch());
  EXPECT_TRUE(outcomes.ok()) << outcomes.status().message();
  if (!outcomes.ok() || outcomes->size() != samples.size())
    return std::vector<RewardOutcome>(samples.size());
  return *outcomes;
}

// Short form of an outcome: the value, "timeout" or "error".
inline std::string brief(const RewardOutcome& outcome) {
  if (outcome.kind == RewardOutcome::Kind::kValue) return format_double(outcome.value);
  if (outcome.kind == RewardOutcome::Kind::kAbsent) return "absent";
  if (outcome.kind == RewardOutcome::Kind::kSkipped) return "skipped";
  return outcome.kind == RewardOutcome::Kind::kTimeout ? "timeout" : "error";
}

inline std::vector<std::string> brief(const std::vector<RewardOutcome>& outcomes) {
  std::vector<std::string> texts;
  for (const RewardOutcome& outcome : outcomes) texts.push_back(brief(outcome));
  return texts;
}

}  // namespace braid::inline reward
