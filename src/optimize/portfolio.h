// A portfolio of searches over one domain, cut into work units: descents from random starts and
// from disturbed best states, Metropolis walks, and a branch-and-bound proof. The result is a
// function of (domain, options that change results, number of units); threads, clock and stop
// callback only decide how many units there are and when.
//
// The domain is read by several threads at once; its const functions must allow that.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "optimize/anneal.h"
#include "optimize/branch.h"
#include "optimize/descent.h"
#include "optimize/narrowed.h"
#include "optimize/units.h"

namespace braid::optimize {

// What a portfolio must know of its domain besides coordinates and changes.
//   Tree:        a cursor over partial states; the costs of its leaves are numbers without
//   infeasibility. Root:        what all trees share for one limit (such as shortened value lists);
//   a constant. Its `bound` is below the
//                cost of every leaf that costs less than the limit, `bounds` the partial states
//                bounded to make it. make_root may start from an earlier root, for a limit at least
//                as high.
//   limit_of:    what a leaf must cost less than, once a state of this cost is known (or none is).
//   state_of:    the state at a leaf.
//   choice_of:   the tree's choice that gives a coordinate the value it has in a state; any order
//   of choices is a path.
//   kept:        the coordinates that a neighbourhood search leaves as they are.
//   fixed_start: where Metropolis walks start.
// A root may say which values its leaves have (`remaining`, by coordinate, ascending): further
// descents of a unit are among these.
template <typename D>
concept PortfolioDomain = CoordinateDomain<D> && WalkDomain<D> &&
    requires(const D& domain, const std::optional<typename D::Cost>& cost,
             const typename D::Tree::Cost& limit, std::shared_ptr<const typename D::Root> root,
             const std::vector<typename D::Tree::Choice>& path, RandomStream& random) {
  requires BranchTree<typename D::Tree>;
  { domain.make_root(limit, root) } -> std::same_as<std::shared_ptr<const typename D::Root>>;
  { root->bound } -> std::convertible_to<typename D::Tree::Cost>;
  { root->bounds } -> std::convertible_to<int64_t>;
  { domain.make_tree(root) } -> std::same_as<typename D::Tree>;
  { domain.limit_of(cost) } -> std::same_as<typename D::Tree::Cost>;
  { domain.state_of(path) } -> std::same_as<typename D::State>;
  { domain.kept(random) } -> std::same_as<std::vector<int>>;
  { domain.fixed_start() } -> std::same_as<typename D::State>;
};

enum class Method {
  kAuto,     // descents, then the proof with a share of neighbourhood searches and further descents
  kDescent,  // descents only
  kAnnealing,   // independent walks from random starts
  kMetropolis,  // independent walks from the fixed start
};

// All fields change results.
struct PortfolioOptions {
  Method method = Method::kAuto;
  uint64_t seed = 1;
  int64_t first_descents = kUnitWindow;  // units before the proof starts
  int64_t proof_period = 4;        // during the proof, every n-th unit looks for better states
  int64_t restless_units = 0;      // of the proof's first so many, every second
  int64_t proof_work = 2'000'000;  // budget of one proof unit, in the tree's work
  // Descents that follow the one of a unit, among values that may be better than what is known: so
  // many at most, and none once so many values of coordinates have been looked at.
  int64_t further_descents = 0, further_values = 0;
  WalkOptions walk;  // of one walk unit
};

// A unit that improved on all units before it.
template <typename Cost>
struct Improvement {
  int64_t unit = 0;
  double elapsed_s = 0;  // when the work on that unit ended
  Cost cost;
};

// A state from which a finer search may start.
template <typename State>
struct Start {
  State state;
  bool improves = false;  // on all before it
};

template <PortfolioDomain D>
class Portfolio final : public UnitSource {
 public:
  using State = typename D::State;
  using Cost = typename D::Cost;
  using Tree = typename D::Tree;
  using Bound = typename Tree::Cost;

  Portfolio(const D& domain, const PortfolioOptions& options)
      : domain_(domain), options_(options) {}

  bool start(int64_t unit) override {
    Slot& slot = slots_[unit % kUnitWindow];
    slot.best = best_;
    slot.cost = cost_;
    slot.kind = kind_of(unit);
    if (slot.kind == Kind::kDescent || slot.kind == Kind::kWalk) return true;
    if (!proof_started_) open_root();
    return slot.kind == Kind::kProof ? start_proof(slot) : start_on_tree(slot);
  }

  void run(int64_t unit) override {
    Slot& slot = slots_[unit % kUnitWindow];
    RandomStream random(options_.seed, static_cast<uint64_t>(unit));
    if (slot.kind == Kind::kDescent) run_descent(unit, slot, random);
    if (slot.kind == Kind::kWalk) run_walk(slot, random);
    if (slot.kind == Kind::kNeighbourhood) run_neighbourhoods(slot, random);
    if (slot.kind == Kind::kProof) run_proof(slot);
  }

  void finish(int64_t unit, double elapsed_s) override {
    Slot& slot = slots_[unit % kUnitWindow];
    evaluations_ += std::exchange(slot.evaluations, 0);
    bounds_ += std::exchange(slot.bounds, 0);
    if (slot.best && (!best_ || *slot.cost < *cost_)) {
      best_ = std::move(slot.best);
      cost_ = slot.cost;
      log_.push_back({unit, elapsed_s, *cost_});
      starts_.push_back({*best_, true});
    } else if (slot.optimum) {
      starts_.push_back({std::move(*slot.optimum), false});
    }
    slot.optimum.reset();
    for (Frontier<Tree>& frontier : slot.open) open(std::move(frontier));
    slot.open.clear();
  }

  const std::optional<State>& best() const { return best_; }
  const std::optional<Cost>& cost() const { return cost_; }
  const std::vector<Improvement<Cost>>& log() const { return log_; }
  // In the order of units: the states of the log, and where the first descents ended otherwise.
  const std::vector<Start<State>>& starts() const { return starts_; }
  int64_t evaluations() const { return evaluations_; }  // whole states priced
  int64_t bounds() const { return bounds_; }            // partial states bounded

  // The next three are for after run_units. Whether no solution is better than best(), or there is
  // none at all.
  bool proven() const {
    return proof_started_ && (open_.empty() || !(open_.begin()->first.first < limit()));
  }
  // What no solution costs less than; limit_of(cost()) when proven.
  Bound lower_bound() const {
    if (!proof_started_)
      return std::min<Bound>(domain_.make_root(limit(), nullptr)->bound, limit());
    if (open_.empty()) return limit();
    return std::min<Bound>(std::max<Bound>(open_.begin()->first.first, root_->bound), limit());
  }

 private:
  static constexpr int kNeighbourhoods = 8;  // per unit, sharing the budget of a proof unit

  enum class Kind { kDescent, kWalk, kNeighbourhood, kProof };

  struct Slot {
    Kind kind = Kind::kDescent;
    std::optional<State>
        best;  // in: the best so far; out: the better of that and what the unit found
    std::optional<Cost> cost;
    std::optional<State> optimum;                  // out: where one of the first descents ended
    std::shared_ptr<const typename D::Root> root;  // of `tree`
    std::optional<Tree> tree;                      // kept for the next unit of the slot
    Frontier<Tree> frontier;                       // in
    std::vector<Frontier<Tree>> open;              // out
    int64_t evaluations = 0;
    int64_t bounds = 0;
  };

  Bound limit() const { return domain_.limit_of(cost_); }

  Kind kind_of(int64_t unit) const {
    if (options_.method == Method::kDescent) return Kind::kDescent;
    if (options_.method != Method::kAuto) return Kind::kWalk;
    if (unit < options_.first_descents) return Kind::kDescent;
    const int64_t turn = unit - options_.first_descents;
    const int64_t period = turn < options_.restless_units ? 2 : options_.proof_period;
    if (turn == 0 || turn % period != 0 || open_.empty()) return Kind::kProof;
    return turn / period % 4 == 0 ? Kind::kDescent : Kind::kNeighbourhood;
  }

  void open(Frontier<Tree> frontier) {
    open_.emplace(std::make_pair(frontier.bound(), frontiers_++), std::move(frontier));
  }

  void make_root(const std::shared_ptr<const typename D::Root>& before) {
    root_limit_ = limit();
    root_ = domain_.make_root(root_limit_, before);
    bounds_ += root_->bounds;
  }

  // Every child of the root becomes a frontier of its own, so that all threads find work.
  void open_root() {
    proof_started_ = true;
    make_root(nullptr);
    Tree tree = domain_.make_tree(root_);
    std::vector<Child<Bound, typename Tree::Choice>> children;
    tree.expand(root_limit_, children);
    for (auto& child : children) open({{}, {std::move(child)}});
  }

  bool start_proof(Slot& slot) {
    while (!open_.empty() && !(std::prev(open_.end())->first.first < limit()))
      open_.erase(std::prev(open_.end()));
    if (open_.empty()) return false;
    slot.frontier = std::move(open_.begin()->second);
    open_.erase(open_.begin());
    return start_on_tree(slot);
  }

  bool start_on_tree(Slot& slot) {
    if (limit() < root_limit_) make_root(root_);
    if (slot.root != root_) {
      slot.root = root_;
      slot.tree.reset();
    }
    return true;
  }

  void run_descent(int64_t unit, Slot& slot, RandomStream& random) {
    State state = domain_.random_state(random);
    if (slot.best && unit % 2 == 1) {
      state = *slot.best;
      perturb(domain_, state, 2, random);
    }
    coordinate_descent(domain_, state, random, slot.evaluations);
    if (options_.further_descents > 0) descend_further(state, slot, random);
    if (unit < options_.first_descents) slot.optimum = state;
    take_if_better(slot, std::move(state));
  }

  // From random states and from `least` disturbed in turn, which becomes the best of their ends.
  void descend_further(State& least, Slot& slot, RandomStream& random) const {
    if constexpr (requires(const typename D::Root& root) { root.remaining; }) {
      const State first = least;
      const auto root = domain_.make_root(domain_.limit_of(domain_.cost(first)), nullptr);
      slot.bounds += root->bounds;
      for (const auto& values : root->remaining)
        if (values.empty()) return;  // nothing is better
      const Narrowed<D> narrowed(domain_, root->remaining, first);
      int64_t values = 0;
      for (int64_t turn = 0; turn < options_.further_descents && values < options_.further_values;
           ++turn) {
        State state = turn % 2 == 0 ? narrowed.random_state(random) : least;
        if (turn % 2 == 1) perturb(narrowed, state, 2, random);
        values += coordinate_descent(narrowed, state, random, slot.evaluations);
        if (domain_.cost(state) < domain_.cost(least)) least = std::move(state);
      }
    }
  }

  void run_walk(Slot& slot, RandomStream& random) {
    State state = options_.method == Method::kMetropolis ? domain_.fixed_start()
                                                         : domain_.random_state(random);
    take_if_better(slot, state);
    walk(domain_, state, options_.walk, random, *slot.best, *slot.cost);
    slot.evaluations += options_.walk.steps;
  }

  void run_neighbourhoods(Slot& slot, RandomStream& random) {
    for (int i = 0; i < kNeighbourhoods && slot.best; ++i) {
      std::vector<typename Tree::Choice> kept;
      for (const int coordinate : domain_.kept(random))
        kept.push_back(domain_.choice_of(*slot.best, coordinate));
      use_tree(slot, options_.proof_work / kNeighbourhoods,
               [&](auto& search) { return search.run_subtree(std::move(kept)); });
    }
  }

  void run_proof(Slot& slot) {
    slot.open = use_tree(slot, options_.proof_work, [&](auto& search) {
                  return search.run(std::move(slot.frontier));
                }).open;
  }

  template <typename Run>
  BranchOutcome<Tree> use_tree(Slot& slot, int64_t budget, const Run& run) {
    if (!slot.tree) slot.tree.emplace(domain_.make_tree(slot.root));
    const int64_t bounds_before = slot.tree->bounds();
    BranchSearch<Tree> search(*slot.tree, domain_.limit_of(slot.cost), budget);
    BranchOutcome<Tree> outcome = run(search);
    slot.bounds += slot.tree->bounds() - bounds_before;
    if (outcome.best) take_if_better(slot, domain_.state_of(*outcome.best));
    return outcome;
  }

  void take_if_better(Slot& slot, State state) const {
    const Cost cost = domain_.cost(state);
    if (slot.cost && !(cost < *slot.cost)) return;
    slot.cost = cost;
    slot.best = std::move(state);
  }

  const D& domain_;
  const PortfolioOptions options_;
  std::array<Slot, kUnitWindow> slots_;
  std::optional<State> best_;
  std::optional<Cost> cost_;
  std::vector<Improvement<Cost>> log_;
  std::vector<Start<State>> starts_;
  int64_t evaluations_ = 0;
  int64_t bounds_ = 0;
  bool proof_started_ = false;
  Bound root_limit_{};
  std::shared_ptr<const typename D::Root> root_;
  int64_t frontiers_ = 0;  // ever opened; the second key, so that equal bounds keep their order
  std::map<std::pair<Bound, int64_t>, Frontier<Tree>> open_;
};

}  // namespace braid::optimize
