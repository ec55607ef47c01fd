// Better configurations of another framework in its own keys: the best legal change of one key, of
// two, and of any number. Pure; thread-safe if the price is.
#pragma once

#include <functional>
#include <vector>

#include "plan/foreign.h"
#include "search/plan_search.h"

namespace braid::planner {

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

// Tries every value of every tunable key, every pair of the `pairs_of` best single values, and then
// improves key by key until none helps. Entries are missing where no change is better than what
// the keys are now.
BestChanges best_changes(const ForeignKeys& keys, const Verdict& now,
                         const std::vector<TunableKey>& tunable, const PriceKeys& price,
                         size_t pairs_of = 24);

}  // namespace braid::planner
