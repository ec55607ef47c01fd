// One search over everything that a plan may say: devices, layouts and residency of all calls
// (search_plans(), also in two parts of the space that a short time searches better: all devices
// for each call, nothing on the host); the same among plans that hand their generation over, each
// judged as it is with that; fusing of both updates, and both fusions, on the best of these;
// rollouts ahead of training on devices of their own. What is not joint: the evaluator, which leads
// the searches, knows neither fusion nor staleness, which judges alone do; and updates are fused
// after a search, in pipelines of their own, while the other calls stay as they are. Values;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/ahead.h"
#include "search/fuse.h"
#include "search/search.h"

namespace braid::inline search {

// What a plan may have beside devices, layouts and residency, about which SpaceOptions decides.
struct PlanParts {
  bool fused_training = true, hand_over = true;
  int64_t staleness = 0;  // that rollouts may have; 0: none
  bool predicted_lengths = true;
};

struct WholeOptions {
  SpaceOptions space;
  SearchOptions search;
  PlanParts parts;
  int64_t ahead_units = 1;  // of search for each division of the devices
  FusionOptions fusion;     // how hard orders are searched; margin and allowed are those above
  Judge judge = {};         // that other searches know, too; empty: one that remembers
  std::optional<Found> found = {};  // without parts, in this space, where it was searched before
};

struct WholeFound {
  Found found;                         // without fusion and staleness
  JudgedPlan plain;                    // the fastest of these
  JudgedPlan fused_training;           // the fastest with fused training, or plain
  JudgedPlan fused;                    // with both fusions too
  JudgedPlan predicted;                // with predicted lengths too
  JudgedPlan best;                     // with staleness too
  std::optional<AheadProposal> ahead;  // where staleness is allowed
  int64_t tried = 0;                   // plans with fusion that were judged
  std::vector<std::string> skipped;    // parts for which no time was left
};

// Share of a step that parts have to save before a plan with them is proposed.
constexpr double kLeastGainOfParts = 0.01;

// The parts that plans of a graph could have, with rollouts so far ahead at most.
PlanParts parts_of(const Graph& graph, int64_t staleness);
bool has_parts(const Graph& graph);

// In the order in which they are searched, as in WholeFound::skipped: "fused updates".
std::vector<std::string> part_names(const PlanParts& parts);

// These options for rollouts ahead alone.
AheadOptions ahead_options(const WholeOptions& options);

// What a plan has beside devices, layouts and residency, in words: "fused updates and rollouts 1
// step ahead"; "" for nothing.
std::string parts_text(const ExecutionPlan& plan);

// Legal edits of a plan's parts beside layouts, of those that are allowed: other numbers of a
// hand-over, none, fusing the updates as they lie, or not, predicted lengths or not, and rollouts
// ahead (without fusion) or not.
std::vector<ExecutionPlan> part_edits(const ExecutionPlan& plan, const PlanningProblem& problem,
                                      const PlanParts& parts);

// Whether a plan has only parts that are allowed. Training beside scoring is never: no search
// chooses it.
bool allows(const PlanParts& parts, const ExecutionPlan& plan);

// No plan of the space takes less by the simulator, whichever of these parts it has. Calls that
// score may hide behind a generation, and updates fill each other's gaps; but no call is shorter
// than alone, updates begin when all is generated, and their passes need their device time. With
// predicted lengths a generation has other samples on its replicas; the longest response is on one
// of them. With staleness generation and updates are side by side.
int64_t whole_bound_us(const PlanSpace& space, const PlanParts& parts);

// Errors: those of search_plans(), and those of the simulator that are not about one plan alone.
// kInfeasible: no plan without fusion and staleness fits. Where search.late says that all of the
// time has passed, the parts that follow are left out, and no more plans of a part are judged.
Result<WholeFound> search_whole(const PlanningProblem& problem, const CallPricer& pricer,
                                const Calibration& calibration, const WholeOptions& options);

}  // namespace braid::inline search
