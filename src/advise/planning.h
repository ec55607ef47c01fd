// A configuration's plan: what was asked for, all that its searches have in common, and what they
// found. Files are read before, and time is that of the caller's clock. Values; one thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optimize/limits.h"
#include "plan/make_problem.h"
#include "plan/planned_keys.h"
#include "search/simulate.h"
#include "search/whole.h"

namespace braid::inline advise {

struct PlanRequest {
  optimize::SearchLimits limits;
  optimize::Clock clock;  // of a time limit
  uint64_t seed = 1;
  double margin_percent = 5;   // of every device's memory that stays free
  double simpler_percent = 2;  // that a simpler plan may take longer
  bool compare = false, explain = false, keep = false;
  bool whole = true;      // else devices, layouts and residency alone
  bool fuses = false;     // the plan with fused training is asked for by itself
  std::string export_to;  // framework
};

// What the search for parts of a plan beside devices, layouts and residency found.
struct WholeProposal {
  WholeFound found;
  double without_s = 0;  // step of the fastest plan without parts, of all searches
  double bound_s = 0;    // no plan with any of them takes less
  double seconds = 0;    // that the search took

  bool wins() const { return found.best.verdict.step_s < (1 - kLeastGainOfParts) * without_s; }
};

// A problem with everything that its search needs. Spaces and judges point into it: it stays where
// it is.
struct Planning {
  PlanningProblem problem;
  Calibration calibration;
  std::vector<std::string> notes;  // what is less exact than it could be
  PlannedKeys keys;                // what the configuration's keys mean to the plan
  PlanConstraints constraints;
  std::optional<ExecutionPlan> given;  // by the configuration
  std::optional<CallPricer> pricer;
  PlanSpace space;
  Judge judge;
  Found found;                         // without parts
  std::optional<WholeProposal> whole;  // with them; none: not searched
  JudgedPlan proposed;                 // the better of both
  DetailedVerdict detailed;            // of that
  int64_t staleness = 0;               // that a plan may have
  optimize::Stopwatch watch;           // since the search began
  double seconds = 0;                  // that the search without parts took
};

// Searches the plan of a problem. REQUIRES: `planning` has all but what searches find. kInfeasible
// where no plan fits, with the smallest cluster on which one would.
Status find_plan(const PlanRequest& request, Planning& planning);

// Of a step, before the first call with a model.
double host_s(const Planning& planning);
// Of the device with the least left.
double spare_bytes(const Verdict& verdict);
// Where four of five measured steps lay, of engines that the fit has seen or not; none for devices
// whose own times were measured, or that the fit has no steps of.
std::optional<std::pair<double, double>> step_interval(const Planning& planning);
// Whether `braid train` executes the plan that is proposed.
Status executable(const Planning& planning);

}  // namespace braid::inline advise
