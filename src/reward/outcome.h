// Shared by the reward types: making outcomes and the types themselves.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "reward/reward.h"

namespace braid::inline reward {

RewardOutcome value_outcome(double value);  // an error where value is not finite
RewardOutcome timeout_outcome(std::string error);
RewardOutcome error_outcome(std::string error);
RewardOutcome absent_outcome();  // the reward does not apply to the sample

// The beginning of a text, for messages.
std::string excerpt(std::string_view text);

// sample.extra["label"] as text: a string as it is, a number as written in JSON. An error where it
// is missing, null or of another type.
Result<std::string> label_text(const RewardSample& sample);

// One factory per type; make_reward checks the options before.
Result<std::unique_ptr<Reward>> make_rule_reward(const RewardOptions& options);
Result<std::unique_ptr<Reward>> make_http_reward(const RewardOptions& options);
Result<std::unique_ptr<Reward>> make_command_reward(const RewardOptions& options);
Result<std::unique_ptr<Reward>> make_python_reward(const RewardOptions& options);

}  // namespace braid::inline reward
