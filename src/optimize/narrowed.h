// A coordinate domain whose coordinates have some of their values only: those that a bound leaves
// once a good state is known. Descents there begin among what may be better, and look at nothing
// else. As thread-safe as the domain.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "optimize/descent.h"

namespace braid::optimize {

template <CoordinateDomain D>
class Narrowed {
 public:
  using Cost = typename D::Cost;
  using State = typename D::State;

  // `values`: by coordinate, ascending, none empty. Random states are `known` but for these. All
  // three must outlive the object.
  Narrowed(const D& domain, const std::vector<std::vector<int32_t>>& values, const State& known)
      : domain_(domain), values_(values), known_(known) {}

  State random_state(RandomStream& random) const {
    State state = known_;
    for (int c = 0; c < num_coordinates(); ++c)
      set(state, c, static_cast<int>(random.below(static_cast<uint64_t>(num_values(c)))));
    return state;
  }
  Cost cost(const State& state) const { return domain_.cost(state); }
  int num_coordinates() const { return domain_.num_coordinates(); }
  int num_values(int coordinate) const { return static_cast<int>(values_[coordinate].size()); }
  // -1: one that it has no longer.
  int value(const State& state, int coordinate) const {
    const std::vector<int32_t>& values = values_[coordinate];
    const int present = domain_.value(state, coordinate);
    const auto found = std::lower_bound(values.begin(), values.end(), present);
    return found != values.end() && *found == present ? static_cast<int>(found - values.begin())
                                                      : -1;
  }
  Cost cost_with(State& state, int coordinate, int value) const {
    return domain_.cost_with(state, coordinate, values_[coordinate][value]);
  }
  void set(State& state, int coordinate, int value) const {
    domain_.set(state, coordinate, values_[coordinate][value]);
  }
  bool may_cost_less(State& state, int coordinate, int value, const Cost& cost) const {
    return domain_.may_cost_less(state, coordinate, values_[coordinate][value], cost);
  }

 private:
  const D& domain_;
  const std::vector<std::vector<int32_t>>& values_;
  const State& known_;
};

}  // namespace braid::optimize
