// Better configurations of another framework in its own keys: the best legal change of one key, of
// two, and of any number. Pure; thread-safe if the price is.
#pragma once

#include <functional>
#include <vector>

#include "foreign/foreign.h"
#include "search/search.h"

namespace braid::inline advise {

// Prices a configuration; an error means that it is illegal.
using PriceKeys = std::function<Result<Verdict>(const ForeignKeys&)>;

struct KeyChange {
  ForeignKeys changed;  // key -> new value
  Verdict verdict;
};

// Whether `a` is the better configuration: fits first, then step time.
bool better(const Verdict& a, const Verdict& b);

struct BestChanges {
  std::vector<KeyChange> by_count;  // the best with one key, with two, with any number
  int64_t priced = 0;
};

// How much is tried.
struct ChangeLimits {
  size_t pairs_of = 24;  // the best changes that are combined in pairs
  size_t starts = 4;     // of the best changes, and of the best pairs, that are improved further
  int64_t most_priced = 4000;  // configurations; improvement stops there
};

// Tries every change, pairs of the best, and improves the best of both, one change more at a time
// until none helps; keys that gain nothing are taken back. Entries are missing where no change is
// better than those with fewer keys.
BestChanges best_changes(const ForeignKeys& keys, const Verdict& now,
                         const std::vector<KeyMove>& moves, const PriceKeys& price,
                         const ChangeLimits& limits = {});

}  // namespace braid::inline advise
