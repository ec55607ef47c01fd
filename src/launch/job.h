// A training run as a job of one rank or several: which program it executes, and its ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/membership.h"
#include "comm/world.h"
#include "config/load.h"
#include "config/options.h"
#include "plan/execution_plan.h"
#include "plan/problem.h"
#include "program/program.h"

namespace braid::inline launch {

struct PlannedRun {
  Config config;  // with what the plan says in place of the configuration's own keys
  Program program;
  std::optional<ExecutionPlan> plan;  // none: one rank runs the graph as it is,
                                      // unpredicted
  std::optional<PlanningProblem> problem;
  bool whole = true;      // the program has the lists of all ranks; else that of this process alone
  bool searched = false;  // the plan is the one that a search of this run found
  bool priced = false;    // likewise, or its memory is predicted
  bool chooses_migration = false;  // fusion.migrate_below_samples: auto, which gains at the start
};

// Whether a configuration says how several processes share the work.
bool states_plan(const Config& config);

// The plan that a configuration states (plan.file, placement, parallel) or asks for (plan.auto),
// compiled; else the program of its graph for one device. Errors: a cluster of several devices
// without a plan, and what a plan says of the engine that this runtime does not take from it.
//
// `membership`: of a rank of a job. It compiles its own list alone: who starts the ranks, or the
// first of them where that is another program than this one, makes the plan, which shows with the
// lists of all ranks that none waits for another in a circle and that memory suffices.
Result<PlannedRun> plan_run(const Config& config,
                            const std::optional<Membership>& membership = std::nullopt);

// Its instructions and their hash, to the standard output.
void print_program(const PlannedRun& planned);

// Runs this command again as one process of this machine for each rank, to their end. A plan that
// was searched is written to RUN/plan.yaml for them.
Status launch_ranks(const PlannedRun& planned);

// Joins the job and runs this process's rank. A rank that fails tells the others why, and ranks
// with another binary, configuration or program do not begin; nor do they where World::agree()
// refuses in `run`. `run` says whether all ranks came to the end together, as they do when a signal
// stops the run: then nobody failed.
Status join_job(const Membership& membership, const PlannedRun& planned, const LoadedConfig& loaded,
                const std::function<Status(World&, bool* together)>& run);

}  // namespace braid::inline launch
