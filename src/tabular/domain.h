// A compiled tabulated problem as a domain for the searches of module optimize: whole plans with
// incremental pricing, and the tree of partial plans with lower bounds. Const functions are
// thread-safe; a state or tree belongs to one thread.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "tabular/model.h"
#include "tabular/tree.h"

namespace braid::tabular {

// Plans that need too much memory come after all that fit, the less over the limit the better.
struct PlanCost {
  int64_t excess_bytes = 0;  // over the capacity, on the fullest device
  int64_t time_us = 0;       // of one iteration
  friend auto operator<=>(const PlanCost&, const PlanCost&) = default;
};

struct PlanState {
  std::vector<int> choice;        // per call, an index into Model::candidates
  std::vector<Candidate> chosen;  // those candidates
  std::vector<int64_t> segment_us;
  PlanCost cost;
  SegmentScratch scratch;
};

struct PlanChange {
  int call = 0;
  int value = 0;
};

class PlanDomain {
 public:
  using Cost = PlanCost;
  using State = PlanState;
  using Change = PlanChange;
  using Tree = PlanTree;
  using Root = PlanRoot;

  // With published_rule, walks compare costs as the published search does: whole tenths of a second
  // over all iterations. `model` must outlive the domain.
  explicit PlanDomain(const Model& model, bool published_rule = false)
      : model_(model), published_rule_(published_rule) {}

  int num_coordinates() const { return model_.num_calls; }
  int num_values(int call) const { return static_cast<int>(model_.candidates[call].size()); }
  int value(const State& state, int call) const { return state.choice[call]; }
  Cost cost(const State& state) const { return state.cost; }
  State random_state(RandomStream& random) const;
  // Every call's fastest option.
  State fixed_start() const;
  Cost cost_with(State& state, int call, int value) const;
  void set(State& state, int call, int value) const;
  // From the call's own time, where only its own segment depends on it.
  bool may_cost_less(const State& state, int call, int value, const Cost& cost) const;

  // A call and another value for it, uniform over all such pairs. REQUIRES: some call has two
  // candidates, or the change is the present value of call 0.
  Change propose(const State& state, RandomStream& random) const;
  Cost cost_after(State& state, Change change) const {
    return cost_with(state, change.call, change.value);
  }
  void apply(State& state, Change change) const { set(state, change.call, change.value); }
  // In tenths of a second over all iterations; a plan without enough memory counts three times its
  // time.
  double increase(const Cost& from, const Cost& to) const;
  bool recordable(const Cost& cost) const { return cost.excess_bytes == 0; }

  // All calls but those of one segment, or a random subset.
  std::vector<int> kept(RandomStream& random) const;

  std::shared_ptr<const Root> make_root(int64_t limit_us,
                                        const std::shared_ptr<const Root>& before) const;
  Tree make_tree(const std::shared_ptr<const Root>& root) const { return Tree(model_, *root); }
  int64_t limit_of(const std::optional<Cost>& cost) const;
  State state_of(const std::vector<PlanChoice>& path) const;
  PlanChoice choice_of(const State& state, int call) const {
    return {call, kOption, state.choice[call]};
  }

 private:
  State state_with(std::vector<int> choice) const;
  Cost price(const State& state, int64_t time_us) const;

  const Model& model_;
  bool published_rule_;
};

}  // namespace braid::tabular
