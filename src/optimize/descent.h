// Coordinate descent: a state is a value for each of several coordinates; each coordinate in turn
// takes its best value while all others stay, until none can improve. Pure functions of their
// arguments and the random stream.
#pragma once

#include <concepts>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace braid::optimize {

// What a coordinate search must know of its domain. `cost_with` may use scratch space inside the
// state (incremental re-evaluation) but leaves its values as they are. Smaller costs are better;
// infeasibility is part of the cost's order. `may_cost_less` is a cheap test: false only if
// cost_with is not below the cost given.
template <typename D>
concept CoordinateDomain = requires(const D& domain, typename D::State& state, RandomStream& random,
                                    int coordinate, int value) {
  requires std::totally_ordered<typename D::Cost>;
  { domain.random_state(random) } -> std::same_as<typename D::State>;
  { domain.cost(state) } -> std::convertible_to<typename D::Cost>;
  { domain.num_coordinates() } -> std::convertible_to<int>;
  { domain.num_values(coordinate) } -> std::convertible_to<int>;
  { domain.value(state, coordinate) } -> std::convertible_to<int>;
  { domain.cost_with(state, coordinate, value) } -> std::convertible_to<typename D::Cost>;
  domain.set(state, coordinate, value);
}
&&requires(const D& domain, typename D::State& state, int coordinate, int value,
           const typename D::Cost& cost) {
  { domain.may_cost_less(state, coordinate, value, cost) } -> std::same_as<bool>;
};

// Coordinates in random order, so that starts differ even from equal states.
inline std::vector<int> shuffled(int count, RandomStream& random) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  for (int i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(uint64_t(i) + 1)]);
  return order;
}

// A random number of random coordinates, at least none and not all.
inline std::vector<int> random_subset(int count, RandomStream& random) {
  const auto size = static_cast<size_t>(random.below(uint64_t(count)));
  std::vector<int> subset = shuffled(count, random);
  subset.resize(size);
  return subset;
}

// Gives one coordinate its best value (the present one if none is better, else the first of
// equals); whether it changed.
template <CoordinateDomain D>
bool improve_coordinate(const D& domain, typename D::State& state, int coordinate,
                        int64_t& evaluations) {
  const int present = domain.value(state, coordinate);
  int best = present;
  typename D::Cost best_cost = domain.cost(state);
  for (int value = 0; value < domain.num_values(coordinate); ++value) {
    if (value == present || !domain.may_cost_less(state, coordinate, value, best_cost)) continue;
    const typename D::Cost cost = domain.cost_with(state, coordinate, value);
    ++evaluations;
    if (!(cost < best_cost)) continue;
    best = value;
    best_cost = cost;
  }
  if (best != present) domain.set(state, coordinate, best);
  return best != present;
}

// Descends to a state that no change of a single coordinate improves; adds to `evaluations`.
// Returns how many values of coordinates it looked at.
template <CoordinateDomain D>
int64_t coordinate_descent(const D& domain, typename D::State& state, RandomStream& random,
                           int64_t& evaluations) {
  int64_t values = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (const int coordinate : shuffled(domain.num_coordinates(), random)) {
      values += domain.num_values(coordinate);
      changed |= improve_coordinate(domain, state, coordinate, evaluations);
    }
  }
  return values;
}

// Gives `count` random coordinates random values.
template <CoordinateDomain D>
void perturb(const D& domain, typename D::State& state, int count, RandomStream& random) {
  for (int i = 0; i < count; ++i) {
    const int coordinate = static_cast<int>(random.below(domain.num_coordinates()));
    domain.set(state, coordinate, static_cast<int>(random.below(domain.num_values(coordinate))));
  }
}

}  // namespace braid::optimize
