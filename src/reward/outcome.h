// Shared by the reward types: making outcomes, and running a function over many items on a few
// threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "reward/reward.h"

namespace braid {

RewardOutcome value_outcome(double value);  // an error where value is not finite
RewardOutcome timeout_outcome(std::string error);
RewardOutcome error_outcome(std::string error);

// sample.extra["label"] as text: a string as it is, a number as written in JSON. An error where it
// is missing, null or of another type.
Result<std::string> label_text(const RewardSample& sample);

// Calls job(worker, item) for every item in [0, items); calls of one worker run one after another.
// Returns the first failure by item; after one no further items are begun.
Status for_each_on_workers(size_t items, size_t workers,
                           const std::function<Status(size_t worker, size_t item)>& job);

// One factory per type; make_reward checks the options before.
Result<std::unique_ptr<Reward>> make_rule_reward(const RewardOptions& options);
Result<std::unique_ptr<Reward>> make_http_reward(const RewardOptions& options);
Result<std::unique_ptr<Reward>> make_command_reward(const RewardOptions& options);
Result<std::unique_ptr<Reward>> make_python_reward(const RewardOptions& options);

}  // namespace braid
