// When to hand a generation over (program/hand_over.h): at how many samples left a step is fastest,
// by the simulator with the lengths that the problem states. Pure; thread-safe.
#pragma once

#include <vector>

#include "search/simulate.h"

namespace braid::inline search {

struct MigrationPoint {
  int64_t below = 0;  // fusion.migrate_below_samples; 0: not handed over
  double step_s = 0;
  bool fits = true;  // in memory
};

// Step times of a plan that asks for a hand-over, whatever its own number, with its own
// migrate_to_samples and migrate_cache: without one, then by thirty-seconds of the samples and,
// beside the fastest of them, numbers between. Errors: those of simulate_plan().
Result<std::vector<MigrationPoint>> migration_curve(const ExecutionPlan& plan,
                                                    const PlanningProblem& problem,
                                                    const Calibration& calibration,
                                                    const SimulationOptions& options = {});

// The plan with `auto` replaced by the number of the fastest step that fits, 0 where none gains;
// so are migrate_to_samples, where that is 0, by parts of what a replica has at the begin, and
// migrate_cache. Other plans as they are.
Result<ExecutionPlan> with_chosen_migration(ExecutionPlan plan, const PlanningProblem& problem,
                                            const Calibration& calibration,
                                            const SimulationOptions& options = {});

}  // namespace braid::inline search
