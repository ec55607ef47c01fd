// One search over everything that a plan may say: devices, layouts and residency of all calls
// (search_plans(), also in two parts of the space that a short time searches better: all devices
// for each call, nothing on the host); the same among plans that hand their generation over, each
// judged as it is with that, in the end with the numbers of `auto` (search/migration.h), and among
// those whose update begins beside a generation on other devices; fusing of
// both updates, and both fusions, on the best of these; plans whose scorers have other devices than
// updates, which begin while samples are scored; weights of the best of these that come over beside
// its training; rollouts ahead of training on devices of their
// own. What is not joint: the evaluator, which leads
// the searches, knows neither fusion nor staleness, which judges alone do; and updates are fused
// after a search, in pipelines of their own, while the other calls stay as they are. Values;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "search/ahead.h"
#include "search/fuse.h"
#include "search/parts.h"
#include "search/search.h"

namespace braid::inline search {

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
  JudgedPlan handed;                   // with a hand-over too
  JudgedPlan fused;                    // with training beside generation too
  JudgedPlan predicted;                // with predicted lengths too
  JudgedPlan beside;                   // or with training beside scoring
  JudgedPlan synced;                   // with weights that come over beside training too
  JudgedPlan best;                     // with staleness too
  std::optional<AheadProposal> ahead;  // where staleness is allowed
  int64_t tried = 0;                   // plans with fusion that were judged
  std::vector<std::string> skipped;    // parts for which no time was left
};

// These options for rollouts ahead alone.
AheadOptions ahead_options(const WholeOptions& options);

// Errors: those of search_plans(), and those of the simulator that are not about one plan alone.
// kInfeasible: no plan without fusion and staleness fits. Where search.late says that all of the
// time has passed, the parts that follow are left out, and no more plans of a part are judged.
Result<WholeFound> search_whole(const PlanningProblem& problem, const CallPricer& pricer,
                                const Calibration& calibration, const WholeOptions& options);

}  // namespace braid::inline search
