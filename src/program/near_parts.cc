#include "program/near_parts.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>
#include <utility>

namespace braid::inline program {
namespace {

constexpr int64_t kNeighbours = 3;  // neighbours on either side, of a part that has too much
constexpr int64_t kFartherNeighbours = 16;  // where none of those helps
constexpr int64_t kUnitsTried = 16;         // units of either side, the nearest
constexpr int64_t kRoundsOfPart = 3;        // exchanges with neighbours, in the mean

using PartUnits = std::vector<int32_t>;

class NearParts {
 public:
  NearParts(const std::vector<int64_t>& tokens, const std::vector<int32_t>& homes, int64_t count)
      : tokens_(tokens), units_(count), load_(count, 0) {
    for (int64_t part = 0; part < count; ++part) fullest_first_.insert({0, part});
    for (size_t unit = 0; unit < tokens.size(); ++unit)
      add(homes[unit], static_cast<int32_t>(unit));
    share_ = std::accumulate(load_.begin(), load_.end(), int64_t{0}) / count;
  }

  void pass_excess();
  void level();
  std::vector<PartUnits> take() { return std::move(units_); }
  int64_t looked_at() const { return looked_at_; }

 private:
  int64_t size() const { return static_cast<int64_t>(units_.size()); }
  void add(int64_t part, int32_t unit) {
    PartUnits& units = units_[part];
    units.insert(std::upper_bound(units.begin(), units.end(), unit), unit);
    change(part, tokens_[unit]);
  }
  void remove(int64_t part, int32_t unit) {
    PartUnits& units = units_[part];
    units.erase(std::lower_bound(units.begin(), units.end(), unit));
    change(part, -tokens_[unit]);
  }
  void change(int64_t part, int64_t tokens) {
    fullest_first_.erase({-load_[part], part});
    load_[part] += tokens;
    fullest_first_.insert({-load_[part], part});
  }
  // Those of a part that lie nearest to another.
  PartUnits towards(int64_t part, int64_t other) const {
    const PartUnits& units = units_[part];
    const auto count = std::min<int64_t>(kUnitsTried, static_cast<int64_t>(units.size()));
    return other > part ? PartUnits(units.end() - count, units.end())
                        : PartUnits(units.begin(), units.begin() + count);
  }
  bool relieve(int64_t full, int64_t reach);

  const std::vector<int64_t>& tokens_;
  std::vector<PartUnits> units_;  // [part], ascending
  std::vector<int64_t> load_;     // [part], in tokens
  // Minus the load, and the part: looking at all parts in each of as many rounds would take their
  // square.
  std::set<std::pair<int64_t, int64_t>> fullest_first_;
  int64_t share_ = 0;
  int64_t looked_at_ = 0;  // parts, to find who gives to whom
};

// In order, from those with more than their share to those with less: fewer pairs than parts. What
// a unit is too large or too small for, the next part makes up.
void NearParts::pass_excess() {
  std::deque<int32_t> excess;
  int64_t over = 0, passed = 0, under = 0, taken = 0;
  const std::vector<int64_t> before = load_;
  for (int64_t part = 0; part < size(); ++part) {
    if (before[part] <= share_) continue;
    over += before[part] - share_;
    const auto begin = static_cast<int64_t>(excess.size());
    while (!units_[part].empty() && 2 * (over - passed) > tokens_[units_[part].back()]) {
      const int32_t unit = units_[part].back();
      excess.insert(excess.begin() + begin, unit);
      passed += tokens_[unit];
      remove(part, unit);
    }
  }
  int64_t last = 0;
  for (int64_t part = 0; part < size(); ++part) {
    if (before[part] > share_) continue;
    under += share_ - before[part], last = part;
    while (!excess.empty() && 2 * (under - taken) > tokens_[excess.front()]) {
      taken += tokens_[excess.front()];
      add(part, excess.front());
      excess.pop_front();
    }
  }
  for (const int32_t unit : excess) add(last, unit);
}

// Gives a unit of a part to a neighbour, perhaps for one of that: where the fuller of the two has
// least then. False: none helps.
bool NearParts::relieve(int64_t full, int64_t reach) {
  int64_t least = load_[full], best = -1;
  int32_t given = -1, got = -1;
  const int64_t end = std::min(size(), full + reach + 1);
  for (int64_t other = std::max<int64_t>(0, full - reach); other < end; ++other) {
    ++looked_at_;
    if (other == full || load_[other] >= load_[full]) continue;
    PartUnits back = towards(other, full);
    back.push_back(-1);  // nothing
    for (const int32_t unit : towards(full, other))
      for (const int32_t for_it : back) {
        const int64_t moved = tokens_[unit] - (for_it < 0 ? 0 : tokens_[for_it]);
        const int64_t most = std::max(load_[full] - moved, load_[other] + moved);
        if (most < least) least = most, best = other, given = unit, got = for_it;
      }
  }
  if (best < 0) return false;
  remove(full, given);
  add(best, given);
  if (got < 0) return true;
  remove(best, got);
  add(full, got);
  return true;
}

// Neighbours of the fullest part take of it until it is good enough.
void NearParts::level() {
  for (int64_t round = 0; round < kRoundsOfPart * size(); ++round) {
    const int64_t part = fullest_first_.begin()->second;
    ++looked_at_;
    if (load_[part] <= share_ + share_ / kGoodShare) return;
    if (!relieve(part, kNeighbours) && !relieve(part, kFartherNeighbours)) return;
  }
}

}  // namespace

std::vector<PartUnits> near_parts(const std::vector<int64_t>& tokens,
                                  const std::vector<int32_t>& homes, int64_t count,
                                  int64_t* looked_at) {
  NearParts parts(tokens, homes, count);
  parts.pass_excess();
  parts.level();
  if (looked_at != nullptr) *looked_at = parts.looked_at();
  return parts.take();
}

}  // namespace braid::inline program
