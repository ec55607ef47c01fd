// What `braid plan` plans: its arguments, and a configuration with its plan found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "braid/plan/import.h"
#include "braid/plan/limits.h"
#include "plan/make_problem.h"
#include "plan/planned_keys.h"
#include "search/simulate.h"
#include "search/whole.h"

namespace braid {

struct PlanArguments {
  std::vector<std::string> inputs;
  std::vector<std::string> what_if;
  std::string out;
  std::string fused_out;    // file for the plan with fused training
  std::string calibration;  // file; "" = the built-in one
  SearchLimits limits;
  uint64_t seed = 1;
  double margin_percent = 5;   // of every device's memory that stays free
  double simpler_percent = 2;  // that a simpler plan may take longer
  bool json = false, compare = false, explain = false, keep = false;
  bool whole = true;       // else devices, layouts and residency alone
  ImportArguments import;  // of another framework's configuration
  std::string export_to;   // framework
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
  Stopwatch watch;                     // since the search began
  double seconds = 0;                  // that the search without parts took
};

// Errors: numbers out of range, unknown frameworks, options that do not go together.
Status check_arguments(const PlanArguments& arguments);

// Loads the inputs and plans. kInfeasible where no plan fits, with the smallest cluster on which
// one would.
Status plan_inputs(const PlanArguments& arguments, const std::vector<std::string>& inputs,
                   Planning& planning);

}  // namespace braid
