// Metropolis walks: propose a change, take it if it is not worse, else with probability exp(-b *
// increase). With a rising b this is simulated annealing (Kirkpatrick et al., Science 220, 1983);
// with a constant one, Markov-chain Monte Carlo (Metropolis et al., J. Chem. Phys. 21, 1953). Pure
// functions of their arguments and the random stream.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

#include "base/rng.h"

namespace braid::optimize {

// `cost_after` may use scratch space inside the state but leaves its values as they are. `increase`
// turns two costs into the number that the walk compares, in the domain's units; at most 0 means
// "not worse". Only recordable costs may become the result (a walk may cross infeasible states).
template <typename D>
concept WalkDomain = requires(const D& domain, typename D::State& state, RandomStream& random,
                              const typename D::Change& change, const typename D::Cost& cost) {
  { domain.cost(state) } -> std::convertible_to<typename D::Cost>;
  { domain.propose(state, random) } -> std::same_as<typename D::Change>;
  { domain.cost_after(state, change) } -> std::convertible_to<typename D::Cost>;
  domain.apply(state, change);
  { domain.increase(cost, cost) } -> std::convertible_to<double>;
  { domain.recordable(cost) } -> std::convertible_to<bool>;
};

// Inverse temperature over a walk: from first to last in equal ratios (equal values: constant).
struct Cooling {
  double first = 1.0;
  double last = 1.0;
};

struct WalkOptions {
  int64_t steps = 0;
  Cooling inverse_temperature;
};

// Walks on from `state`; the best recordable state seen is kept in `best` if its cost is below
// best_cost.
template <WalkDomain D>
void walk(const D& domain, typename D::State& state, const WalkOptions& options,
          RandomStream& random, typename D::State& best, typename D::Cost& best_cost) {
  const Cooling& cooling = options.inverse_temperature;
  const double ratio = options.steps > 1
                           ? std::pow(cooling.last / cooling.first, 1.0 / double(options.steps - 1))
                           : 1;
  double inverse_temperature = cooling.first;
  typename D::Cost present = domain.cost(state);
  for (int64_t step = 0; step < options.steps; ++step, inverse_temperature *= ratio) {
    const typename D::Change change = domain.propose(state, random);
    const typename D::Cost cost = domain.cost_after(state, change);
    const double increase = domain.increase(present, cost);
    if (increase > 0 && random.unit() >= std::exp(-inverse_temperature * increase)) continue;
    domain.apply(state, change);
    present = cost;
    if (!domain.recordable(cost) || !(cost < best_cost)) continue;
    best = state;
    best_cost = cost;
  }
}

}  // namespace braid::optimize
