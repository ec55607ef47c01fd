// Which samples are scored, or trained on, together. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "reward/reward.h"

namespace braid::inline reward {

// Indices of the samples by batch: `kind` is sample (each alone), group (those of one prompt) or
// step (all).
std::vector<std::vector<size_t>> cut_batches(const std::vector<RewardSample>& samples,
                                             const std::string& kind);

// Takes out the kept samples of groups of which fewer than `least` are kept; returns how many
// groups lost samples. groups[i] is the group of sample i.
int64_t drop_short_groups(const std::vector<int64_t>& groups, size_t least,
                          std::vector<bool>* kept);

}  // namespace braid::inline reward
