#include "samples/drawn_groups.h"

#include <map>
#include <set>
#include <utility>

namespace braid::inline samples {

std::vector<bool> with_signal(const std::vector<double>& rewards,
                              const std::vector<int64_t>& groups) {
  std::map<int64_t, std::set<double>> worth;
  for (size_t i = 0; i < groups.size(); ++i) worth[groups[i]].insert(rewards[i]);
  std::vector<bool> out;
  for (const int64_t group : groups) out.push_back(worth[group].size() > 1);
  return out;
}

std::vector<bool> of_first_groups(const std::vector<int64_t>& groups, int64_t most) {
  std::set<int64_t> seen;
  std::vector<bool> out;
  for (const int64_t group : groups) {
    if (static_cast<int64_t>(seen.size()) < most) seen.insert(group);
    out.push_back(seen.count(group) > 0);
  }
  return out;
}

int64_t count_groups(const std::vector<int64_t>& groups) {
  return static_cast<int64_t>(std::set<int64_t>(groups.begin(), groups.end()).size());
}

void DrawnGroups::begin() {
  left_.reset();
  draws_ = 0;
}

int64_t DrawnGroups::groups() const {
  return left_ ? count_groups(left_->store.counts("groups")) : 0;
}

void DrawnGroups::take(SampleStore left, FieldHoldings holdings) {
  ++draws_;
  if (!left_) {
    left_ = Left{std::move(left), std::move(holdings)};
    return;
  }
  left_->holdings.append(holdings, left_->store.size());
  left_->store.append(std::move(left));
}

void DrawnGroups::give(int64_t most, SampleStore* store, FieldHoldings* holdings) {
  BRAID_CHECK(left_, "something was drawn");
  const std::vector<bool> kept = of_first_groups(left_->store.counts("groups"), most);
  left_->store.retain(kept);
  left_->holdings.retain(kept);
  *store = std::move(left_->store);
  *holdings = std::move(left_->holdings);
  left_.reset();
}

}  // namespace braid::inline samples
