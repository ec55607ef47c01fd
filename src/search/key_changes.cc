#include "search/key_changes.h"

#include <algorithm>
#include <optional>

namespace braid::planner {
namespace {

class ChangeSearch {
 public:
  ChangeSearch(const ForeignKeys& keys, const Verdict& now, const PriceKeys& price)
      : keys_(keys), now_(now), price_(price) {}

  // The verdict with some keys changed; nothing for illegal ones and for values they have already.
  std::optional<KeyChange> attempt(const ForeignKeys& changed) {
    ForeignKeys all = keys_;
    for (const auto& [key, value] : changed) {
      if (all.count(key) > 0 && all[key] == value) return std::nullopt;
      all[key] = value;
    }
    ++priced_;
    auto verdict = price_(all);
    if (!verdict.ok()) return std::nullopt;
    return KeyChange{changed, *verdict};
  }

  void keep_better(const std::optional<KeyChange>& candidate, std::optional<KeyChange>* best) {
    if (!candidate || !better(candidate->verdict, now_)) return;
    if (!*best || better(candidate->verdict, (*best)->verdict)) *best = candidate;
  }

  int64_t priced() const { return priced_; }

 private:
  const ForeignKeys& keys_;
  const Verdict& now_;
  const PriceKeys& price_;
  int64_t priced_ = 0;
};

std::vector<KeyChange> singles(const std::vector<TunableKey>& tunable, ChangeSearch* search) {
  std::vector<KeyChange> out;
  for (const TunableKey& key : tunable)
    for (const std::string& value : key.values)
      if (auto change = search->attempt({{key.key, value}})) out.push_back(*change);
  std::stable_sort(out.begin(), out.end(), [](const KeyChange& a, const KeyChange& b) {
    return better(a.verdict, b.verdict);
  });
  return out;
}

std::optional<KeyChange> best_pair(const std::vector<KeyChange>& ones, size_t pairs_of,
                                   ChangeSearch* search) {
  std::optional<KeyChange> best;
  const size_t count = std::min(pairs_of, ones.size());
  for (size_t i = 0; i < count; ++i)
    for (size_t j = i + 1; j < count; ++j) {
      ForeignKeys both = ones[i].changed;
      both.insert(ones[j].changed.begin(), ones[j].changed.end());
      if (both.size() == 2) search->keep_better(search->attempt(both), &best);
    }
  return best;
}

// One key more at a time, or another value of one that is changed already, while it helps.
KeyChange descend(KeyChange start, const std::vector<TunableKey>& tunable, ChangeSearch* search) {
  for (bool improved = true; improved;) {
    improved = false;
    for (const TunableKey& key : tunable)
      for (const std::string& value : key.values) {
        ForeignKeys changed = start.changed;
        changed[key.key] = value;
        const auto candidate = search->attempt(changed);
        if (!candidate || !better(candidate->verdict, start.verdict)) continue;
        start = *candidate;
        improved = true;
      }
  }
  return start;
}

}  // namespace

bool better(const Verdict& a, const Verdict& b) {
  if (a.fits != b.fits) return a.fits;
  constexpr double kNoise = 1e-9;
  if (!a.fits) return a.peak_bytes < b.peak_bytes * (1 - kNoise);
  return a.step_s < b.step_s * (1 - kNoise);
}

BestChanges best_changes(const ForeignKeys& keys, const Verdict& now,
                         const std::vector<TunableKey>& tunable, const PriceKeys& price,
                         size_t pairs_of) {
  ChangeSearch search(keys, now, price);
  const std::vector<KeyChange> ones = singles(tunable, &search);
  BestChanges out;
  std::optional<KeyChange> best;
  if (!ones.empty()) search.keep_better(ones.front(), &best);
  if (best) out.by_count.push_back(*best);
  std::optional<KeyChange> two = best_pair(ones, pairs_of, &search);
  if (two && (!best || better(two->verdict, best->verdict)))
    best = two, out.by_count.push_back(*two);
  if (best) {
    const KeyChange any = descend(*best, tunable, &search);
    if (better(any.verdict, best->verdict)) out.by_count.push_back(any);
  }
  out.priced = search.priced();
  return out;
}

}  // namespace braid::planner
