// Finds a fast execution plan that fits. A portfolio of searches (optimize/portfolio.h) over the
// space of search/space.h minimizes the cheap evaluator; what it finds is priced by a judge
// (the simulator), which decides. Every plan that the judge has accepted is kept, and the answer is
// the fastest of them, so that more units never give a slower one. The result is a function of
// (problem, options that change results, units completed).
//
// Without a judge the evaluator has the last word.
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "optimize/portfolio.h"
#include "search/domain.h"

namespace braid::inline search {

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

// Whether a plan fits and leaves a share of every device's memory free.
inline bool leaves(const Verdict& verdict, double margin) {
  return verdict.fits && verdict.peak_bytes <= (1 - margin) * verdict.capacity_bytes;
}

// Called by several threads at once.
using Judge = std::function<Result<Verdict>(const ExecutionPlan&)>;

struct SearchOptions {
  optimize::Method method = optimize::Method::kAuto;
  uint64_t seed = 1;
  int64_t judged = 24;          // neighbours of a plan that the judge prices
  optimize::UnitOptions units;  // threads, limits, clock
  // Share of every device's memory that stays free, where a plan with that exists.
  double margin = 0;
  // A simpler plan is proposed in place of the fastest where it takes at most this share longer.
  double simpler = 0;
  bool polish = true;  // try edits of the best plan, too
  // No plan takes less by the judge than by the evaluator with nothing moved (Moves::kNone), as by
  // the simulator without fusion and staleness: what cannot be faster then is not judged.
  bool evaluator_bounds_judge = false;
  // The judge hands the generation over, or begins updates early (search/whole.h): calls that score
  // may hide behind these, so that of the evaluator's time generation and training alone count.
  bool hides_scoring = false;
  // With evaluator_bounds_judge: what cannot take less than this is not judged either.
  double limit_s = HUGE_VAL;
  bool bound = true;  // else Found::lower_bound_us is 0, which takes less time
  // Whether that share of the time there is has passed; asked between batches of plans for the
  // judge and between pieces of the bound. Empty: there is no limit.
  std::function<bool(double share)> late;
};

struct JudgedPlan {
  ExecutionPlan plan;
  Verdict verdict;
};

struct LogEntry {
  int64_t unit = 0;
  double elapsed_s = 0;
  double step_s = 0;
  bool fits = false;
};

struct Found {
  Choice choice;  // in the space, to which the search adds what it lacks of the plan
  ExecutionPlan plan;
  PlanCost cost;                     // by the evaluator
  std::optional<Verdict> verdict;    // of the judge, if there is one
  std::optional<JudgedPlan> faster;  // where the plan is proposed as the simpler one
  std::vector<JudgedPlan> judged;    // in the order of pricing
  double margin = 0;                 // that was asked for; 0 where no plan that leaves it was found
  int64_t best_cost_us = 0;          // the least that the evaluator found
  // With a judge, no plan of the space takes less by its word (Moves::kNone, memory without a
  // margin); else by the evaluator's.
  int64_t lower_bound_us = 0;
  bool proven = false;  // the bound is at least kProvenShare of the time of `plan`
  int64_t evaluations = 0, bounds = 0, units = 0;
  std::vector<LogEntry> log;
};
inline constexpr double kProvenShare = 0.999;

// kInfeasible when no plan of the space fits, with what is missing.
Result<Found> search_plans(PlanSpace& space, const SearchOptions& options, const Judge& judge = {});

// Layouts (mesh and sizes) that differ, and what is unusual: decoding in a pipeline over nodes,
// roles that leave the devices. The fewer the simpler.
int complexity(const ExecutionPlan& plan, const PlanningProblem& problem);

// The best values of one coordinate, at most `most`, by the cost that the plan has with them.
struct Alternative {
  int value = 0;
  PlanCost cost;
};
std::vector<Alternative> alternatives(const PlanSpace& space, const Choice& choice, int coordinate,
                                      int64_t most);

}  // namespace braid::inline search
