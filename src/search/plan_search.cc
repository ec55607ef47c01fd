#include "search/plan_search.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace braid::planner {
namespace {

// Annealing cools from accepting a loss of 5 % in one of e proposals to one of 0.05 %.
constexpr double kFirstLoss = 0.05;
constexpr double kLastLoss = 0.0005;
constexpr int64_t kAnnealingSteps = 50'000;
constexpr int64_t kProofWork = 1'000'000;
constexpr int kRounds = 3;  // of judging the neighbours of the best judged plan
// Where the judge finds that nothing fits: further searches, their units, and how far below what
// fitted by the evaluator they aim.
constexpr int kSmallerRounds = 5;
constexpr int64_t kUnitsOfSmaller = 32;
constexpr double kRoomBelow = 0.98;

optimize::PortfolioOptions portfolio_options(const SearchOptions& options) {
  optimize::PortfolioOptions out;
  out.method = options.method;
  out.seed = options.seed;
  out.proof_work = kProofWork;
  out.walk = {.steps = kAnnealingSteps, .inverse_temperature = {1 / kFirstLoss, 1 / kLastLoss}};
  return out;
}

using Plans = std::vector<std::pair<PlanCost, Choice>>;

// The choice and the best changes of each of its coordinates, by cost.
Plans neighbourhood(const PlanSpace& space, const Choice& choice, int64_t count) {
  const PlanDomain domain(space);
  Plans out = {{domain.state_with(choice).cost, choice}};
  for (int c = 0; c < space.num_coordinates(); ++c) {
    const std::vector<Alternative> values = alternatives(space, choice, c, count);
    for (const Alternative& other : values) {
      if (other.value == choice[c]) continue;
      Choice changed = choice;
      changed[c] = other.value;
      out.emplace_back(other.cost, std::move(changed));
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

bool ranks_before(const Verdict& a, const Verdict& b) {
  if (a.fits != b.fits) return a.fits;
  return a.fits ? a.step_s < b.step_s : a.peak_bytes < b.peak_bytes;
}

// One plan for the judge is one work unit, so that threads share them; verdicts know nothing of
// each other.
class JudgeUnits final : public optimize::UnitSource {
 public:
  JudgeUnits(const PlanSpace& space, const Judge& judge, const Plans& plans)
      : space_(space), judge_(judge), plans_(plans), verdicts_(plans.size()) {}

  bool start(int64_t unit) override { return unit < static_cast<int64_t>(plans_.size()); }
  void run(int64_t unit) override {
    const size_t index = static_cast<size_t>(unit);
    verdicts_[index] = judge_(plan_of(space_, plans_[index].second));
  }
  void finish(int64_t, double) override {}

  const std::vector<std::optional<Result<Verdict>>>& verdicts() const { return verdicts_; }

 private:
  const PlanSpace& space_;
  const Judge& judge_;
  const Plans& plans_;
  std::vector<std::optional<Result<Verdict>>> verdicts_;  // each written by the unit's thread alone
};

// Prices the best plan of the evaluator and neighbours of the best so far until the judge's budget
// is spent or nothing is new.
class Judging {
 public:
  Judging(const PlanSpace& space, const Judge& judge, const SearchOptions& options)
      : space_(space), judge_(judge), budget_(options.judged), threads_(options.units.threads) {}

  Status run(Found& found) {
    for (int round = 0; round < kRounds; ++round) {
      const Choice centre = found.choice;
      const int64_t share = (budget_ + kRounds - 1) / kRounds;
      BRAID_TRY(price(chosen(neighbourhood(space_, centre, share), share), found));
      if (found.choice == centre) break;
    }
    return ok_status();
  }

 private:
  // The first `count` plans that fit under the evaluator and are new.
  Plans chosen(const Plans& plans, int64_t count) {
    Plans out;
    for (const auto& plan : plans) {
      if (static_cast<int64_t>(out.size()) == count) break;
      if (plan.first.excess_bytes == 0 && seen_.insert(plan.second).second) out.push_back(plan);
    }
    return out;
  }

  Status price(const Plans& plans, Found& found) {
    JudgeUnits units(space_, judge_, plans);
    run_units(units, {.threads = threads_, .stop = {}, .elapsed_s = {}});
    for (size_t i = 0; i < plans.size(); ++i) {
      BRAID_ASSIGN(const Verdict verdict, *units.verdicts()[i]);
      const auto& [cost, choice] = plans[i];
      found.judged.push_back({choice, cost, verdict});
      if (found.verdict && !ranks_before(verdict, *found.verdict)) continue;
      found.choice = choice;
      found.cost = cost;
      found.verdict = verdict;
    }
    return ok_status();
  }

  const PlanSpace& space_;
  const Judge& judge_;
  int64_t budget_;
  int threads_;
  std::set<Choice> seen_;
};

}  // namespace

std::vector<Alternative> alternatives(const PlanSpace& space, const Choice& choice, int coordinate,
                                      int64_t most) {
  const PlanDomain domain(space);
  PlanState state = domain.state_with(choice);
  std::vector<Alternative> out;
  const auto cheaper = [](const Alternative& a, const Alternative& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.value < b.value;
  };
  for (int value = 0; value < domain.num_values(coordinate); ++value) {
    const bool full = static_cast<int64_t>(out.size()) >= most;
    if (full && !domain.may_cost_less(state, coordinate, value, out.front().cost)) continue;
    out.push_back({value, value == choice[coordinate]
                              ? state.cost
                              : domain.cost_with(state, coordinate, value)});
    std::push_heap(out.begin(), out.end(), cheaper);
    if (!full) continue;
    std::pop_heap(out.begin(), out.end(), cheaper);
    out.pop_back();
  }
  std::sort_heap(out.begin(), out.end(), cheaper);
  return out;
}

namespace {

// Under the evaluator alone.
Result<Found> search_once(const PlanSpace& space, const SearchOptions& options) {
  const PlanDomain domain(space);
  optimize::Portfolio<PlanDomain> portfolio(domain, portfolio_options(options));
  const optimize::UnitReport units = run_units(portfolio, options.units);
  Found found;
  found.units = units.units;
  found.evaluations = portfolio.evaluations();
  found.bounds = portfolio.bounds();
  found.proven = portfolio.proven();
  for (const auto& step : portfolio.log())
    found.log.push_back({step.unit, step.elapsed_s, static_cast<double>(step.cost.time_us) / 1e6,
                         step.cost.excess_bytes == 0});
  if (!portfolio.best() || portfolio.cost()->excess_bytes > 0)
    return Status(Code::kInfeasible,
                  cat(found.proven ? "no plan fits into device memory"
                                   : "no plan that fits into device memory was found",
                      portfolio.best()
                          ? cat("; the best needs ",
                                format_bytes(static_cast<double>(portfolio.cost()->excess_bytes)),
                                " more per device")
                          : std::string()));
  found.choice = portfolio.best()->choice;
  found.cost = *portfolio.cost();
  found.best_cost_us = found.cost.time_us;
  found.lower_bound_us = portfolio.lower_bound();
  return found;
}

// The judge found that no candidate fits: searches again among plans that the evaluator finds
// smaller, by what the judge found too much. Counts of the further searches are added.
Status search_smaller(const PlanSpace& space, const SearchOptions& options, const Judge& judge,
                      Found& found) {
  PlanSpace smaller = space;
  SearchOptions again = options;
  again.units.stop = {};
  again.units.max_units = std::min(found.units, kUnitsOfSmaller);
  for (int round = 0; round < kSmallerRounds && !found.verdict->fits; ++round) {
    const Verdict& verdict = *found.verdict;
    const double over = verdict.peak_bytes / std::max(1.0, verdict.capacity_bytes);
    for (double& bytes : smaller.capacity_bytes) bytes *= kRoomBelow / std::max(1.0, over);
    Result<Found> next = search_once(smaller, again);
    if (!next.ok()) break;
    next->judged = std::move(found.judged);
    BRAID_TRY(Judging(smaller, judge, options).run(*next));
    next->lower_bound_us = found.lower_bound_us;
    next->units += found.units;
    next->evaluations += found.evaluations;
    next->bounds += found.bounds;
    next->log = std::move(found.log);
    next->proven = false;
    found = *std::move(next);
  }
  if (found.verdict->fits) return ok_status();
  return {Code::kInfeasible,
          cat("no plan that fits into device memory was found: under the simulator the best needs ",
              format_bytes(found.verdict->peak_bytes), " of ",
              format_bytes(found.verdict->capacity_bytes), " (", found.verdict->reason, ")")};
}

}  // namespace

Result<Found> search_plans(const PlanSpace& space, const SearchOptions& options,
                           const Judge& judge) {
  BRAID_ASSIGN(Found found, search_once(space, options));
  if (judge) {
    BRAID_TRY(Judging(space, judge, options).run(found));
    if (!found.verdict->fits) BRAID_TRY(search_smaller(space, options, judge, found));
  }
  found.plan = plan_of(space, found.choice);
  return found;
}

}  // namespace braid::planner
