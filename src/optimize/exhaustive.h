// Tries every state of a small coordinate domain; the yardstick for the other searches.
#pragma once

#include <cstdint>
#include <utility>

#include "optimize/descent.h"

namespace braid::optimize {

// Leaves `state` at the first best of all value combinations; returns how many were priced.
template <CoordinateDomain D>
int64_t exhaustive_search(const D& domain, typename D::State& state) {
  const int count = domain.num_coordinates();
  for (int c = 0; c < count; ++c) domain.set(state, c, 0);
  typename D::State best = state;
  typename D::Cost best_cost = domain.cost(state);
  int64_t evaluations = 1;
  while (true) {
    int c = count - 1;  // counts upwards like an odometer, the last coordinate fastest
    while (c >= 0 && domain.value(state, c) + 1 == domain.num_values(c)) domain.set(state, c--, 0);
    if (c < 0) break;
    domain.set(state, c, domain.value(state, c) + 1);
    ++evaluations;
    if (domain.cost(state) < best_cost) {
      best = state;
      best_cost = domain.cost(state);
    }
  }
  state = std::move(best);
  return evaluations;
}

}  // namespace braid::optimize
