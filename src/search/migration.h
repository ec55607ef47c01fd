// When to hand a generation over (program/hand_over.h): at how many samples left a step is fastest,
// by the simulator with the lengths that the problem states. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "search/simulate.h"

namespace braid::inline search {

// Of a step: a gain below is none.
inline constexpr double kNoGain = 0.005;

struct MigrationPoint {
  int64_t below = 0;  // fusion.migrate_below_samples; 0: not handed over
  // Since the step began: the last sample is generated, and the last is scored by the calls that
  // may begin before.
  double generated_s = 0, scored_s = 0;
  double step_s = 0;
  bool fits = true;  // in memory
};

// Points of a plan that asks for a hand-over, whatever its own number, with its own
// migrate_to_samples and migrate_cache: without one, then by thirty-seconds of the samples and,
// beside the fastest of them, numbers between. Errors: those of compile() and simulate().
Result<std::vector<MigrationPoint>> migration_curve(const ExecutionPlan& plan,
                                                    const PlanningProblem& problem,
                                                    const Calibration& calibration,
                                                    const SimulationOptions& options = {});

// The fastest that fits; the point without a hand-over where that gains less than half a hundredth.
// REQUIRES: a curve of migration_curve().
MigrationPoint fastest_of(const std::vector<MigrationPoint>& curve);

struct MigrationProposal {
  ExecutionPlan plan;     // with the numbers of the fastest step that fits; 0 where none gains
  MigrationPoint chosen;  // of it
  int64_t samples = 0;    // of a step
  // Of the migrate_to_samples and migrate_cache with which a hand-over is fastest.
  Fusion tried;
  std::vector<MigrationPoint> curve;
  std::string why_not;  // where none gains: the reason, for people
};

struct MigrationLimits {
  int64_t points = INT64_MAX;       // steps that are simulated, beside the one without
  std::function<bool()> stop = {};  // asked before each but the first; true: with what there is
};

// Looks for the fastest hand-over of a plan: of its number, of migrate_to_samples, where the plan
// says 0, by multiples and parts of what a replica has at the begin, and of migrate_cache, where
// the plan says true. Where the limits say so, of fewer numbers. Errors: a plan that cannot hand
// over, those of simulate().
Result<MigrationProposal> propose_migration(const ExecutionPlan& plan,
                                            const PlanningProblem& problem,
                                            const Calibration& calibration,
                                            const SimulationOptions& options = {},
                                            const MigrationLimits& limits = {});

// The plan with `auto` replaced by the numbers of propose_migration(). Other plans as they are.
Result<ExecutionPlan> with_chosen_migration(ExecutionPlan plan, const PlanningProblem& problem,
                                            const Calibration& calibration,
                                            const SimulationOptions& options = {});

// Why a plan cannot have a key of its fusion, of which it is only asked whether it could: the
// message without the key, and without what mends it.
std::string cause_alone(const Status& status, const std::string& key);

// The curve as a table of a dozen lines with the chosen number marked, and one line that says what
// it gains or why nothing does; or why the plan cannot hand over.
std::string migration_text(const Result<MigrationProposal>& proposal);
OrderedJson migration_json(const Result<MigrationProposal>& proposal);

}  // namespace braid::inline search
