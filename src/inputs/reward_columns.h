// Whether the data have the columns that rewards ask for (reward/needed_columns.h). Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "data/dataset.h"
#include "reward/reward.h"

namespace braid::inline inputs {

// Every column that a reward of the list needs is in some row of the data (those of very large ones
// are not all looked at); the error names reward and column, and the columns that are there.
// REQUIRES: rewards and options are aligned; null rewards need nothing.
Status check_columns(const std::vector<std::unique_ptr<Reward>>& rewards,
                     const std::vector<RewardOptions>& options, const DataSet& data);

}  // namespace braid::inline inputs
