#include "reward/batches.h"

#include <map>

namespace braid::inline reward {

std::vector<std::vector<size_t>> cut_batches(const std::vector<RewardSample>& samples,
                                             const std::string& kind) {
  std::vector<std::vector<size_t>> batches;
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool joins =
        i > 0 && (kind == "step" || (kind == "group" && samples[i].group == samples[i - 1].group));
    if (!joins) batches.emplace_back();
    batches.back().push_back(i);
  }
  return batches;
}

int64_t drop_short_groups(const std::vector<int64_t>& groups, size_t least,
                          std::vector<bool>* kept) {
  std::map<int64_t, std::vector<size_t>> left;
  for (size_t i = 0; i < groups.size(); ++i)
    if ((*kept)[i]) left[groups[i]].push_back(i);
  int64_t dropped = 0;
  for (const auto& [group, items] : left) {
    if (items.size() >= least) continue;
    ++dropped;
    for (const size_t item : items) (*kept)[item] = false;
  }
  return dropped;
}

}  // namespace braid::inline reward
