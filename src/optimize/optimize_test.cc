// The searches against exhaustive enumeration on a small domain, and the promise that results are a
// function of the number of units alone.
#include <gmock/gmock.h>

#include <mutex>
#include <numeric>
#include <set>

#include "optimize/exhaustive.h"
#include "optimize/portfolio.h"

namespace braid::optimize {
namespace {

// Values for coordinates with a price for every pair of values of two coordinates; no structure
// that would make it easy. A state whose values sum to a multiple of `forbidden` is infeasible.
struct PairCosts {
  int coordinates = 5;
  int values = 4;
  uint64_t seed = 1;
  int forbidden = 0;

  int64_t pair(int a, int x, int b, int y) const {
    return static_cast<int64_t>(random_u64(seed, uint64_t(a * 64 + b), uint64_t(x * 64 + y)) %
                                1000);
  }
};

struct ToyCost {
  bool infeasible = false;
  int64_t sum = 0;
  friend auto operator<=>(const ToyCost&, const ToyCost&) = default;
};

struct ToyChoice {
  int coordinate = 0;
  int value = 0;
};

struct ToyRoot {
  int64_t bound = 0;
  int64_t bounds = 0;
  std::vector<std::vector<int32_t>> remaining;
};

class ToyTree {
 public:
  using Cost = int64_t;
  using Choice = ToyChoice;

  explicit ToyTree(const PairCosts& costs) : costs_(costs) {}

  bool push(const ToyChoice& choice, int64_t limit) {
    path_.push_back(choice);
    return sum() < limit;
  }
  void pop() { path_.pop_back(); }

  void expand(int64_t limit, std::vector<Child<int64_t, ToyChoice>>& children) {
    children.clear();
    const int coordinate = free_coordinate();
    const bool is_leaf = static_cast<int>(path_.size()) + 1 == costs_.coordinates;
    for (int value = 0; value < costs_.values; ++value, ++work_) {
      path_.push_back({coordinate, value});
      const bool fits = !is_leaf || !infeasible();
      if (fits && sum() < limit) children.push_back({sum(), path_.back(), is_leaf});
      path_.pop_back();
    }
    std::stable_sort(children.begin(), children.end(),
                     [](const auto& a, const auto& b) { return a.bound < b.bound; });
  }
  int64_t work() const { return work_; }
  int64_t bounds() const { return work_; }

 private:
  int free_coordinate() const {
    std::set<int> used;
    for (const ToyChoice& choice : path_) used.insert(choice.coordinate);
    int free = 0;
    while (used.count(free) > 0) ++free;
    return free;
  }
  // Of the pairs chosen so far: a lower bound, as prices are not negative.
  int64_t sum() const {
    int64_t total = 0;
    for (const ToyChoice& a : path_)
      for (const ToyChoice& b : path_)
        if (a.coordinate < b.coordinate)
          total += costs_.pair(a.coordinate, a.value, b.coordinate, b.value);
    return total;
  }
  bool infeasible() const {
    int values = 0;
    for (const ToyChoice& choice : path_) values += choice.value;
    return costs_.forbidden > 0 && values % costs_.forbidden == 0;
  }

  const PairCosts& costs_;
  std::vector<ToyChoice> path_;
  int64_t work_ = 0;
};

class ToyDomain {
 public:
  using State = std::vector<int>;
  using Cost = ToyCost;
  using Change = ToyChoice;
  using Tree = ToyTree;
  using Root = ToyRoot;

  explicit ToyDomain(PairCosts costs) : costs_(costs) {}

  int num_coordinates() const { return costs_.coordinates; }
  int num_values(int) const { return costs_.values; }
  int value(const State& state, int coordinate) const { return state[coordinate]; }
  void set(State& state, int coordinate, int value) const { state[coordinate] = value; }
  State fixed_start() const { return State(costs_.coordinates, 0); }
  State random_state(RandomStream& random) const {
    State state;
    for (int c = 0; c < costs_.coordinates; ++c)
      state.push_back(static_cast<int>(random.below(uint64_t(costs_.values))));
    return state;
  }
  Cost cost(const State& state) const {
    Cost cost;
    int values = 0;
    for (int a = 0; a < costs_.coordinates; ++a) {
      values += state[a];
      for (int b = a + 1; b < costs_.coordinates; ++b)
        cost.sum += costs_.pair(a, state[a], b, state[b]);
    }
    cost.infeasible = costs_.forbidden > 0 && values % costs_.forbidden == 0;
    return cost;
  }
  Cost cost_with(State& state, int coordinate, int value) const {
    State other = state;
    other[coordinate] = value;
    return cost(other);
  }
  bool may_cost_less(State& state, int coordinate, int value, const Cost& cost) const {
    return value % 2 == 1 || cost_with(state, coordinate, value) < cost;
  }
  Change propose(const State&, RandomStream& random) const {
    return {static_cast<int>(random.below(uint64_t(costs_.coordinates))),
            static_cast<int>(random.below(uint64_t(costs_.values)))};
  }
  Cost cost_after(State& state, Change change) const {
    return cost_with(state, change.coordinate, change.value);
  }
  void apply(State& state, Change change) const { state[change.coordinate] = change.value; }
  double increase(const Cost& from, const Cost& to) const {
    return static_cast<double>(to.sum - from.sum) + 1e6 * (to.infeasible - from.infeasible);
  }
  bool recordable(const Cost& cost) const { return !cost.infeasible; }
  std::vector<int> kept(RandomStream& random) const {
    return random_subset(costs_.coordinates, random);
  }

  std::shared_ptr<const Root> make_root(int64_t, const std::shared_ptr<const Root>&) const {
    std::vector<int32_t> all(costs_.values);
    std::iota(all.begin(), all.end(), 0);
    return std::make_shared<const Root>(Root{0, 0, {size_t(costs_.coordinates), all}});
  }
  Tree make_tree(const std::shared_ptr<const Root>&) const { return Tree(costs_); }
  int64_t limit_of(const std::optional<Cost>& cost) const {
    return cost && !cost->infeasible ? cost->sum : int64_t{1} << 40;
  }
  State state_of(const std::vector<ToyChoice>& path) const {
    State state(costs_.coordinates, 0);
    for (const ToyChoice& choice : path) state[choice.coordinate] = choice.value;
    return state;
  }
  ToyChoice choice_of(const State& state, int coordinate) const {
    return {coordinate, state[coordinate]};
  }

 private:
  PairCosts costs_;
};

int64_t optimum(const ToyDomain& domain) {
  ToyDomain::State state = domain.fixed_start();
  exhaustive_search(domain, state);
  return domain.cost(state).sum;
}

// Everything that a portfolio reports, without times.
auto result_of(const Portfolio<ToyDomain>& portfolio) {
  std::vector<std::pair<int64_t, int64_t>> log;
  for (const auto& step : portfolio.log()) log.emplace_back(step.unit, step.cost.sum);
  return std::make_tuple(portfolio.best(), portfolio.evaluations(), portfolio.bounds(),
                         portfolio.proven(), portfolio.lower_bound(), log);
}

TEST(Exhaustive, PricesEveryStateOnceAndFindsTheLeast) {
  const ToyDomain domain({.coordinates = 3, .values = 4, .seed = 5, .forbidden = 0});
  ToyDomain::State found = domain.fixed_start();
  EXPECT_EQ(exhaustive_search(domain, found), 64);
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b)
      for (int c = 0; c < 4; ++c) EXPECT_GE(domain.cost({a, b, c}), domain.cost(found));
}

TEST(Descent, EndsWhereNoSingleChangeHelps) {
  const ToyDomain domain({.coordinates = 6, .values = 5, .seed = 2, .forbidden = 3});
  for (uint64_t stream = 0; stream < 20; ++stream) {
    RandomStream random(7, stream);
    ToyDomain::State state = domain.random_state(random);
    const ToyCost before = domain.cost(state);
    int64_t evaluations = 0;
    coordinate_descent(domain, state, random, evaluations);
    EXPECT_LE(domain.cost(state), before);
    EXPECT_GE(evaluations, 6);  // odd values are always priced
    for (int c = 0; c < 6; ++c)
      for (int v = 0; v < 5; ++v) EXPECT_GE(domain.cost_with(state, c, v), domain.cost(state));
  }
}

TEST(Narrowed, DescendsAmongItsValuesAlone) {
  const ToyDomain domain({.coordinates = 4, .values = 5, .seed = 8});
  const std::vector<std::vector<int32_t>> values = {{1, 3}, {0, 2, 4}, {4}, {0, 1}};
  const ToyDomain::State known = {0, 1, 2, 3};
  const Narrowed<ToyDomain> narrowed(domain, values, known);
  for (int c = 0; c < 4; ++c) EXPECT_EQ(narrowed.value(known, c), -1) << c;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    RandomStream random(seed, 0);
    ToyDomain::State state = narrowed.random_state(random);
    int64_t evaluations = 0;
    EXPECT_GE(coordinate_descent(narrowed, state, random, evaluations), 8);
    for (int c = 0; c < 4; ++c) {
      EXPECT_EQ(values[c].at(narrowed.value(state, c)), state[c]);
      for (const int32_t value : values[c])
        EXPECT_FALSE(domain.cost_with(state, c, value) < domain.cost(state));
    }
  }
}

TEST(Walk, RecordsTheBestFeasibleStateThatItMeets) {
  const ToyDomain domain({.coordinates = 6, .values = 5, .seed = 3, .forbidden = 2});
  RandomStream random(1, 0);
  ToyDomain::State state = domain.fixed_start();
  ToyDomain::State best = state;
  ToyCost best_cost{true, 0};
  walk(domain, state, {.steps = 4000, .inverse_temperature = {0.001, 0.1}}, random, best,
       best_cost);
  EXPECT_FALSE(best_cost.infeasible);
  EXPECT_EQ(domain.cost(best), best_cost);
  EXPECT_LE(best_cost, domain.cost(state));
  EXPECT_LE(static_cast<double>(best_cost.sum), 1.1 * static_cast<double>(optimum(domain)));
}

// At temperature zero no uphill step is taken; at infinite temperature every step is.
TEST(Walk, TemperatureDecidesOverUphillSteps) {
  const ToyDomain domain({.coordinates = 6, .values = 5, .seed = 4, .forbidden = 0});
  ToyDomain::State cold = domain.fixed_start();
  for (int step = 0; step < 200; ++step) {
    RandomStream random(2, uint64_t(step));
    const ToyCost before = domain.cost(cold);
    ToyDomain::State best = cold;
    ToyCost best_cost = before;
    walk(domain, cold, {.steps = 1, .inverse_temperature = {1e9, 1e9}}, random, best, best_cost);
    ASSERT_LE(domain.cost(cold), before);
    ToyDomain::State hot = cold;
    RandomStream again(3, uint64_t(step));
    RandomStream same(3, uint64_t(step));
    const ToyChoice proposal = domain.propose(hot, again);
    walk(domain, hot, {.steps = 1, .inverse_temperature = {1e-12, 1e-12}}, same, best, best_cost);
    ASSERT_EQ(hot[proposal.coordinate], proposal.value);
  }
}

TEST(Portfolio, ProvesTheOptimumOfEnumeration) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const ToyDomain domain({.coordinates = 5, .values = 4, .seed = seed, .forbidden = 3});
    Portfolio<ToyDomain> portfolio(domain, {.seed = seed, .proof_work = 50, .walk = {}});
    const UnitReport report = run_units(portfolio, {.stop = {}, .elapsed_s = {}});
    EXPECT_TRUE(report.exhausted);
    ASSERT_TRUE(portfolio.proven()) << seed;
    EXPECT_EQ(portfolio.cost()->sum, optimum(domain)) << seed;
    EXPECT_EQ(portfolio.lower_bound(), optimum(domain)) << seed;
  }
}

TEST(Portfolio, BoundIsNeverAboveTheOptimumHoweverEarlyItStops) {
  const ToyDomain domain({.coordinates = 7, .values = 4, .seed = 9, .forbidden = 2});
  const int64_t least = optimum(domain);
  int64_t before = 0;
  for (int64_t units : {1, 5, 16, 17, 20, 40, 90, 200}) {
    Portfolio<ToyDomain> portfolio(domain, {.proof_work = 40, .walk = {}});
    run_units(portfolio, {.max_units = units, .stop = {}, .elapsed_s = {}});
    EXPECT_LE(portfolio.lower_bound(), least) << units;
    EXPECT_GE(portfolio.lower_bound(), before) << units;
    EXPECT_GE(portfolio.cost()->sum, least) << units;
    EXPECT_EQ(portfolio.proven(), portfolio.lower_bound() == portfolio.cost()->sum) << units;
    before = portfolio.lower_bound();
  }
}

TEST(Portfolio, SaysWhenThereIsNoSolution) {
  const ToyDomain domain({.coordinates = 4, .values = 3, .seed = 1, .forbidden = 1});
  Portfolio<ToyDomain> portfolio(domain, {.walk = {}});
  run_units(portfolio, {.stop = {}, .elapsed_s = {}});
  EXPECT_TRUE(portfolio.proven());
  EXPECT_TRUE(portfolio.cost()->infeasible);
}

TEST(Portfolio, ResultDependsOnUnitsAndNotOnThreads) {
  const ToyDomain domain({.coordinates = 7, .values = 5, .seed = 6, .forbidden = 4});
  for (const Method method : {Method::kAuto, Method::kDescent, Method::kAnnealing}) {
    for (const int64_t units : {3, 21, 50}) {
      const PortfolioOptions options{.method = method,
                                     .seed = 11,
                                     .proof_work = 300,
                                     .walk = {.steps = 100, .inverse_temperature = {0.01, 0.1}}};
      Portfolio<ToyDomain> alone(domain, options);
      run_units(alone, {.threads = 1, .max_units = units, .stop = {}, .elapsed_s = {}});
      for (const int threads : {2, 3, 16}) {
        Portfolio<ToyDomain> together(domain, options);
        run_units(together, {.threads = threads, .max_units = units, .stop = {}, .elapsed_s = {}});
        EXPECT_EQ(result_of(together), result_of(alone)) << threads << " threads, " << units;
      }
    }
  }
}

TEST(Portfolio, FurtherDescentsOfAUnitEndNoWorse) {
  int better = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const ToyDomain domain({.coordinates = 8, .values = 6, .seed = seed});
    const auto of = [&](int64_t descents, int64_t values) {
      Portfolio<ToyDomain> portfolio(domain, {.method = Method::kDescent,
                                              .seed = seed,
                                              .further_descents = descents,
                                              .further_values = values,
                                              .walk = {}});
      run_units(portfolio, {.max_units = 1, .stop = {}, .elapsed_s = {}});
      return std::pair(portfolio.cost()->sum, portfolio.evaluations());
    };
    const auto one = of(0, 0), two = of(1, 1000), many = of(15, 1000'000);
    EXPECT_LE(many.first, two.first);
    EXPECT_LE(two.first, one.first);
    better += many.first < one.first;
    EXPECT_LT(one.second, two.second);
    EXPECT_LT(two.second, many.second);
    EXPECT_EQ(of(15, 1), two);  // no further one once so many values have been looked at
  }
  EXPECT_GE(better, 10);
}

TEST(Portfolio, SeedsDiffer) {
  const ToyDomain domain({.coordinates = 7, .values = 5, .seed = 6, .forbidden = 0});
  std::set<std::vector<std::pair<int64_t, int64_t>>> logs;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Portfolio<ToyDomain> portfolio(domain, {.method = Method::kDescent, .seed = seed, .walk = {}});
    run_units(portfolio, {.max_units = 4, .stop = {}, .elapsed_s = {}});
    logs.insert(std::get<5>(result_of(portfolio)));
  }
  EXPECT_GT(logs.size(), 1U);
}

// Records what is known when a unit starts, and the order of results.
class Recorder final : public UnitSource {
 public:
  explicit Recorder(int64_t units) : units_(units) {}
  bool start(int64_t unit) override {
    if (unit >= units_) return false;
    known_.push_back(static_cast<int64_t>(finished_.size()));
    return true;
  }
  void run(int64_t unit) override {
    const std::lock_guard lock(mutex_);
    ran_.insert(unit);
  }
  void finish(int64_t unit, double) override { finished_.push_back(unit); }

  int64_t units_;
  std::vector<int64_t> known_;
  std::vector<int64_t> finished_;
  std::mutex mutex_;
  std::multiset<int64_t> ran_;
};

TEST(Units, EachUnitKnowsExactlyTheResultsOutsideItsWindow) {
  for (const int threads : {1, 2, 7}) {
    Recorder recorder(60);
    const UnitReport report =
        run_units(recorder, {.threads = threads, .stop = {}, .elapsed_s = {}});
    EXPECT_EQ(report.units, 60);
    EXPECT_TRUE(report.exhausted);
    for (int64_t unit = 0; unit < 60; ++unit) {
      EXPECT_EQ(recorder.known_[unit], std::max<int64_t>(0, unit - kUnitWindow + 1));
      EXPECT_EQ(recorder.finished_[unit], unit);
      EXPECT_EQ(recorder.ran_.count(unit), 1U);
    }
  }
}

TEST(Units, StopsAtAUnitBorder) {
  Recorder recorder(1000);
  int asked = 0;
  const UnitReport report = run_units(
      recorder, {.threads = 2, .stop = [&asked] { return ++asked > 25; }, .elapsed_s = {}});
  EXPECT_EQ(report.units, 25);
  EXPECT_FALSE(report.exhausted);
  EXPECT_EQ(recorder.finished_.size(), 25U);
}

}  // namespace
}  // namespace braid::optimize
