// The simulator as the judge of plans: compiles a plan, runs one step of it and reports step time,
// calls and memory. Pure; thread-safe.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "search/search.h"
#include "sim/simulate.h"

namespace braid::inline search {

struct SimulationOptions {
  uint64_t seed = 0;                      // of the response lengths
  std::set<std::string> idle_calls = {};  // training calls that leave their weights as they are
  // Lengths of recorded steps in place of drawn ones: hand-overs are priced by the mean over all of
  // them, other plans by the first.
  std::vector<SampleLengths> steps = {};
  bool free_prefixes = false;  // as in SimOptions, of hand-overs
};

// Errors: a plan that breaks a rule, lengths that do not match. A plan that runs out of memory is a
// verdict that says where.
Result<Verdict> simulate_plan(const ExecutionPlan& plan, const PlanningProblem& problem,
                              const Calibration& calibration, const SimulationOptions& options);

// A verdict with what each call needs on each device.
struct DetailedVerdict {
  Verdict verdict;
  std::vector<std::vector<double>>
      peak_bytes;               // [calls with a model, in the graph's order][device], 0 on others
  std::vector<double> begin_s;  // first start of each of these calls
};
Result<DetailedVerdict> simulate_plan_in_detail(const ExecutionPlan& plan,
                                                const PlanningProblem& problem,
                                                const Calibration& calibration,
                                                const SimulationOptions& options = {});

// Lists of plans are not verified, which takes longer than simulating them where devices are many:
// who takes one compiles it. Both references must outlive the judge.
Judge simulator_judge(const PlanningProblem& problem, const Calibration& calibration,
                      const SimulationOptions& options = {});

}  // namespace braid::inline search
