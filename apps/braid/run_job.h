// A training run as a job of one rank or several: which program it executes, its ranks, and what
// was predicted of it beside what was measured.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/membership.h"
#include "comm/world.h"
#include "config/options.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"
#include "program/program.h"
#include "runtime/session.h"

namespace braid {

struct PlannedRun {
  Config config;  // with what the plan says in place of the configuration's own keys
  Program program;
  std::optional<ExecutionPlan> plan;  // none: one rank runs the graph as it is
  std::optional<PlanningProblem> problem;
};

// The plan that a configuration states (plan.file, placement, parallel) or asks for (plan.auto),
// compiled; else the program of its graph for one device. Errors: a cluster of several devices
// without a plan, and what a plan says of the engine that this runtime does not take from it.
Result<PlannedRun> plan_run(const Config& config);

// Runs this command again as one process of this machine for each rank, to their end. A plan that
// was searched is written to RUN/plan.yaml for them.
Status launch(const PlannedRun& planned);

// Joins the job and runs this process's rank. A rank that fails tells the others why, and ranks
// with another binary, configuration (its text) or program do not begin. `run` says whether all
// ranks came to the end together, as they do when a signal stops the run: then nobody failed.
Status join_job(const Membership& membership, const PlannedRun& planned,
                const std::string& configuration,
                const std::function<Status(World&, bool* together)>& run);

// Predicted and measured seconds of a run under a plan; nothing without one.
class Prediction {
 public:
  // REQUIRES: `planned` outlives this.
  explicit Prediction(const PlannedRun& planned) : planned_(planned) {}
  void note(const Session& session, const std::map<std::string, double>& row);
  // Writes RUN/predicted.json and prints a summary. Medians over the steps after the first.
  Status write(const std::string& folder) const;

 private:
  const PlannedRun& planned_;
  std::vector<double> steps_;
  std::map<std::string, std::vector<double>> calls_;
  std::vector<std::vector<double>> peaks_;  // [rank], bytes after each step
};

}  // namespace braid
