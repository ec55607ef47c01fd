// Execution plans as a domain for the searches of module optimize: coordinates are the options of
// the calls and what stays of the roles; whole plans with incremental pricing, and the tree of
// partial plans with lower bounds. Const functions are thread-safe; a state or tree belongs to one
// thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "optimize/branch.h"
#include "search/evaluate.h"

namespace braid::inline search {

struct PlanState {
  Choice choice;
  Assignment plan;
  std::vector<int64_t> segment_us;
  PlanCost cost;
  // Scratch: a coordinate, and what all segments but its own take at least whatever its value.
  int floored = -1;
  int64_t floor_us = 0;
};

// One coordinate takes a value.
struct PlanChoice {
  int32_t coordinate = 0;
  int32_t value = 0;
  friend bool operator==(const PlanChoice&, const PlanChoice&) = default;
};

// Per coordinate, the segments whose time it changes, ascending.
std::vector<std::vector<int>> segments_by_coordinate(const PlanSpace& space);

// Per coordinate, the values of plans that may cost less than a limit: those whose own bound
// reaches it are gone, until nothing changes.
struct PlanRoot {
  PlanRoot(const PlanSpace& space, int64_t limit_us, Moves moves = Moves::kPriced);
  Moves moves;                                  // what the bounds of all its trees count
  std::vector<std::vector<int32_t>> remaining;  // ascending
  std::vector<std::vector<int>> segments_of;    // per coordinate: segments whose time it changes
  int64_t bound = 0;
  int64_t bounds = 0;  // partial plans bounded to make it
};

// Lower bound of a partial plan: for each segment the larger of
//   * its schedule with open calls at their least time on devices of their own, and
//   * the device time of its calls, open ones at their least, over the number of devices,
// summed over segments.
class PlanBounder {
 public:
  PlanBounder(const PlanSpace& space, const std::vector<std::vector<int32_t>>& remaining,
              Moves moves);

  // Of all segments of a plan.
  std::vector<int64_t> segment_bounds_us(const Assignment& plan) const;
  int64_t segment_bound_us(const Assignment& plan, int segment, Moves moves) const;
  // Of a plan that differs from one with known bounds in these segments; at least the limit if it
  // is at least the limit with free moves.
  int64_t bound_us(const Assignment& plan, const std::vector<int>& segments,
                   const std::vector<int64_t>& known_us, int64_t limit_us) const;
  // Of a call's option alone, given the bounds while the call is open.
  int64_t quick_bound_us(const PlanChoice& choice, const std::vector<int64_t>& known_us) const;

 private:
  const PlanSpace& space_;
  Moves moves_;
  std::vector<int64_t> least_us_;    // per call
  std::vector<int64_t> least_area_;  // device-microseconds
};

class PlanTree {
 public:
  using Cost = int64_t;
  using Choice = PlanChoice;
  using Children = std::vector<optimize::Child<Cost, PlanChoice>>;

  PlanTree(const PlanSpace& space, std::shared_ptr<const PlanRoot> root);

  bool push(const PlanChoice& choice, int64_t limit_us);
  void pop();
  void expand(int64_t limit_us, Children& children);
  int64_t work() const { return kBoundWork * bounds_; }
  int64_t bounds() const { return bounds_; }

 private:
  static constexpr int64_t kBoundWork = 16;

  void assign(const PlanChoice& choice);
  void unassign(int32_t coordinate);
  int next_coordinate() const;
  bool is_assigned(int32_t coordinate) const;

  const PlanSpace& space_;
  std::shared_ptr<const PlanRoot> root_;
  PlanBounder bounder_;
  Assignment plan_;
  std::vector<int32_t> order_;  // of branching: roles, then calls from the longest
  std::vector<int32_t> path_;   // assigned coordinates
  std::vector<std::vector<int64_t>> segment_us_;  // bounds, by length of the path
  int64_t bounds_ = 0;
};

class PlanDomain {
 public:
  using Cost = PlanCost;
  using State = PlanState;
  using Change = PlanChoice;
  using Tree = PlanTree;
  using Root = PlanRoot;

  // `space` must outlive the domain.
  explicit PlanDomain(const PlanSpace& space);

  int num_coordinates() const { return space_.num_coordinates(); }
  int num_values(int coordinate) const;
  int value(const State& state, int coordinate) const { return state.choice[coordinate]; }
  Cost cost(const State& state) const { return state.cost; }
  // Coordinates uniform, then drawn again one by one where memory does not suffice.
  State random_state(RandomStream& random) const;
  // Every call's fastest option, everything on its devices.
  State fixed_start() const;
  State state_with(Choice choice) const;
  Cost cost_with(State& state, int coordinate, int value) const;
  void set(State& state, int coordinate, int value) const;
  // By the option's own time, then with weights that move in no time.
  bool may_cost_less(State& state, int coordinate, int value, const Cost& cost) const;

  // A coordinate, uniform, and another value for it.
  Change propose(const State& state, RandomStream& random) const;
  Cost cost_after(State& state, Change change) const {
    return cost_with(state, change.coordinate, change.value);
  }
  void apply(State& state, Change change) const { set(state, change.coordinate, change.value); }
  // In shares of the fastest possible step; a plan without enough memory counts three times its
  // time.
  double increase(const Cost& from, const Cost& to) const;
  bool recordable(const Cost& cost) const { return cost.excess_bytes == 0; }

  // All coordinates but those of one segment, or a random subset.
  std::vector<int> kept(RandomStream& random) const;

  std::shared_ptr<const Root> make_root(int64_t limit_us,
                                        const std::shared_ptr<const Root>& before) const;
  Tree make_tree(std::shared_ptr<const Root> root) const { return Tree(space_, std::move(root)); }
  int64_t limit_of(const std::optional<Cost>& cost) const;
  State state_of(const std::vector<PlanChoice>& path) const;
  PlanChoice choice_of(const State& state, int coordinate) const {
    return {coordinate, state.choice[coordinate]};
  }

 private:
  int64_t others_floor_us(State& state, int coordinate) const;
  // Puts a value into the assignment alone.
  void place(Assignment& plan, int coordinate, int value) const;

  const PlanSpace& space_;
  std::vector<std::vector<int>> segments_of_;  // segments_by_coordinate
  int64_t scale_us_ = 1;
};

}  // namespace braid::inline search
