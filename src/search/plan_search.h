// Finds a fast execution plan that fits: a portfolio of searches (optimize/portfolio.h) over the
// space of search/plan_space.h under the cheap evaluator; the best plans and their neighbours are
// then priced by a judge (the simulator), which decides. The result is a function of (problem,
// options that change results, units completed).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "optimize/portfolio.h"
#include "search/plan_domain.h"

namespace braid::planner {

// What a judge says about a plan.
struct Verdict {
  double step_s = 0;
  double peak_bytes = 0;       // on the device with the least of its memory left
  double capacity_bytes = 0;   // of that device
  double utilisation = 0;      // share of device time that computes
  std::vector<double> call_s;  // first start to last end, calls with a model in the graph's order
  bool fits = true;
  std::string reason;  // why it does not fit
};
// Takes the device into the verdict if it is fuller than those before.
inline void note_device(Verdict& verdict, double peak_bytes, double capacity_bytes) {
  if (verdict.capacity_bytes > 0 &&
      peak_bytes * verdict.capacity_bytes <= verdict.peak_bytes * capacity_bytes)
    return;
  verdict.peak_bytes = peak_bytes;
  verdict.capacity_bytes = capacity_bytes;
}

// Called by several threads at once.
using Judge = std::function<Result<Verdict>(const ExecutionPlan&)>;

struct SearchOptions {
  optimize::Method method = optimize::Method::kAuto;
  uint64_t seed = 1;
  int64_t judged = 24;          // plans that the judge prices
  optimize::UnitOptions units;  // threads, limits, clock
};

struct Judged {
  Choice choice;
  PlanCost cost;  // by the evaluator
  Verdict verdict;
};

struct LogEntry {
  int64_t unit = 0;
  double elapsed_s = 0;
  double step_s = 0;
  bool fits = false;
};

// What weaving the training calls does to the step.
struct FusionGain {
  double without_s = 0, with_s = 0;  // with_s 0: no plan with it fits
  bool taken = false;
};

struct Found {
  Choice choice;  // the best by the judge
  ExecutionPlan plan;
  PlanCost cost;                     // by the evaluator
  std::optional<Verdict> verdict;    // of the judge, if there is one
  std::vector<Judged> judged;        // in the order of pricing
  std::optional<FusionGain> fusion;  // where it was tried (search/plan_fuse.h)
  int64_t best_cost_us = 0;          // the least that the evaluator found
  int64_t lower_bound_us = 0;        // no plan of the space costs less under the evaluator
  bool proven = false;  // best_cost_us is the optimum under the evaluator, and it fits by the judge
  int64_t evaluations = 0, bounds = 0, units = 0;
  std::vector<LogEntry> log;
};

// With a judge, the result fits by its word: where it finds that the evaluator's best do not,
// smaller ones are searched. kInfeasible when no plan of the space fits, with what is missing.
Result<Found> search_plans(const PlanSpace& space, const SearchOptions& options,
                           const Judge& judge = {});

// The best values of one coordinate, at most `most`, by the cost that the plan has with them.
struct Alternative {
  int value = 0;
  PlanCost cost;
};
std::vector<Alternative> alternatives(const PlanSpace& space, const Choice& choice, int coordinate,
                                      int64_t most);

}  // namespace braid::planner
