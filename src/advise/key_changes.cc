#include "advise/key_changes.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"

namespace braid::inline advise {
namespace {

bool same_value(const std::string& a, const std::string& b) { return lowered(a) == lowered(b); }

class ChangeSearch {
 public:
  ChangeSearch(const ForeignKeys& keys, const PriceKeys& price, const ChangeLimits& limits)
      : keys_(keys), price_(price), limits_(limits) {}

  // `start` with a move more; keys that get back the value which they have now are unchanged.
  ForeignKeys combine(const ForeignKeys& start, const KeyMove& move) const {
    ForeignKeys changed = start;
    for (const auto& [key, value] : move) {
      const auto now = keys_.find(key);
      if (now != keys_.end() && same_value(now->second, value))
        changed.erase(key);
      else
        changed[key] = value;
    }
    return changed;
  }

  // The verdict with some keys changed; nothing for illegal ones and past the limit.
  std::optional<KeyChange> attempt(const ForeignKeys& changed) {
    if (changed.empty()) return std::nullopt;
    const auto known = priced_.find(changed);
    if (known != priced_.end()) return known->second;
    if (static_cast<int64_t>(priced_.size()) >= limits_.most_priced) return std::nullopt;
    ForeignKeys all = keys_;
    for (const auto& [key, value] : changed) all[key] = value;
    const auto verdict = price_(all);
    return priced_[changed] =
               verdict.ok() ? std::optional(KeyChange{changed, *verdict}) : std::nullopt;
  }

  int64_t priced() const { return static_cast<int64_t>(priced_.size()); }

 private:
  const ForeignKeys& keys_;
  const PriceKeys& price_;
  const ChangeLimits& limits_;
  std::map<ForeignKeys, std::optional<KeyChange>> priced_;
};

void sort_best_first(std::vector<KeyChange>* changes) {
  std::stable_sort(changes->begin(), changes->end(), [](const KeyChange& a, const KeyChange& b) {
    return better(a.verdict, b.verdict);
  });
}

std::vector<KeyChange> singles(const std::vector<KeyMove>& moves, ChangeSearch* search) {
  std::vector<KeyChange> out;
  for (const KeyMove& move : moves)
    if (const auto change = search->attempt(search->combine({}, move))) out.push_back(*change);
  sort_best_first(&out);
  return out;
}

std::vector<KeyChange> pairs(const std::vector<KeyChange>& ones, size_t pairs_of,
                             ChangeSearch* search) {
  std::vector<KeyChange> out;
  const size_t count = std::min(pairs_of, ones.size());
  for (size_t i = 0; i < count; ++i)
    for (size_t j = i + 1; j < count; ++j) {
      ForeignKeys both = ones[i].changed;
      both.insert(ones[j].changed.begin(), ones[j].changed.end());
      if (both.size() != ones[i].changed.size() + ones[j].changed.size()) continue;
      if (const auto change = search->attempt(both)) out.push_back(*change);
    }
  sort_best_first(&out);
  return out;
}

// One move more at a time, or another value of a key that is changed already, while it helps.
KeyChange descend(KeyChange start, const std::vector<KeyMove>& moves, ChangeSearch* search) {
  for (bool improved = true; improved;) {
    improved = false;
    for (const KeyMove& move : moves) {
      const auto candidate = search->attempt(search->combine(start.changed, move));
      if (!candidate || !better(candidate->verdict, start.verdict)) continue;
      start = *candidate;
      improved = true;
    }
  }
  return start;
}

// Without the keys that gain nothing.
KeyChange prune(KeyChange change, ChangeSearch* search) {
  for (const auto& [key, value] : ForeignKeys(change.changed)) {
    ForeignKeys fewer = change.changed;
    fewer.erase(key);
    const auto candidate = search->attempt(fewer);
    if (candidate && !better(change.verdict, candidate->verdict)) change = *candidate;
  }
  return change;
}

// The best with one key, with two and with more, each only if better than those before.
std::vector<KeyChange> best_by_count(std::vector<KeyChange> all, const Verdict& now) {
  sort_best_first(&all);
  std::vector<KeyChange> out;
  for (const size_t most : {size_t{1}, size_t{2}, SIZE_MAX})
    for (const KeyChange& change : all) {
      if (change.changed.size() > most) continue;
      if (better(change.verdict, out.empty() ? now : out.back().verdict)) out.push_back(change);
      break;
    }
  return out;
}

}  // namespace

bool better(const Verdict& a, const Verdict& b) {
  if (a.fits != b.fits) return a.fits;
  constexpr double kNoise = 1e-9;
  if (!a.fits) return a.peak_bytes < b.peak_bytes * (1 - kNoise);
  return a.step_s < b.step_s * (1 - kNoise);
}

BestChanges best_changes(const ForeignKeys& keys, const Verdict& now,
                         const std::vector<KeyMove>& moves, const PriceKeys& price,
                         const ChangeLimits& limits) {
  ChangeSearch search(keys, price, limits);
  const std::vector<KeyChange> ones = singles(moves, &search);
  const std::vector<KeyChange> twos = pairs(ones, limits.pairs_of, &search);
  std::vector<KeyChange> all;
  for (const std::vector<KeyChange>* starts : {&ones, &twos})
    for (size_t i = 0; i < std::min(limits.starts, starts->size()); ++i)
      all.push_back(descend((*starts)[i], moves, &search));
  for (KeyChange& change : all) change = prune(std::move(change), &search);
  all.insert(all.end(), ones.begin(), ones.end());
  all.insert(all.end(), twos.begin(), twos.end());
  return {best_by_count(std::move(all), now), search.priced()};
}

}  // namespace braid::inline advise
