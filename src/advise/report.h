// What `braid plan` says about a found plan: its lines, comparison with other systems' plans, and
// the smallest cluster for a model that fits nowhere. Values and their texts; pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::inline advise {

// A plan beside ours; either a verdict or why there is none.
struct CompareRow {
  std::string name, description;
  std::optional<ExecutionPlan> plan;
  std::optional<Verdict> verdict;
  std::string reason;
};
// Every baseline's plan, priced by the judge (HybridFlow's mapping uses the pricer).
std::vector<CompareRow> compare_baselines(const PlanningProblem& problem, const CallPricer& pricer,
                                          const Judge& judge);
// A table: step time, ratio to ours, seconds per call, peak memory, utilisation.
std::string compare_text(const PlanningProblem& problem, const std::vector<CompareRow>& rows);
Json compare_json(const PlanningProblem& problem, const std::vector<CompareRow>& rows);

// The plan as lines: when each call begins and ends, its devices and strategy; then where the state
// of roles waits, if the plan says it.
std::string plan_table(const PlanningProblem& problem, const ExecutionPlan& plan,
                       const DetailedVerdict& detailed);

// The fewest nodes like the cluster's first node on which some plan fits, up to most_devices;
// nothing if there are none. `search` looks for a plan for a problem.
struct SmallestCluster {
  int nodes = 0, devices = 0;
};
std::optional<SmallestCluster> smallest_cluster(
    const PlanningProblem& problem, int most_devices,
    const std::function<bool(const PlanningProblem&)>& fits);

}  // namespace braid::inline advise
