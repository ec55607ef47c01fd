// Rollouts ahead of training (staleness of a plan) as a proposal beside the fastest synchronous
// plan: whether generation on devices of its own, for a later step, makes a step shorter by the
// simulator's word. Beside it and not in its place: older rollouts are not the same ones, so that
// only who asks for them gets them. Values; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "search/search.h"

namespace braid::inline search {

struct AheadOptions {
  int64_t staleness = 1;
  SpaceOptions space;  // what plans may have; meshes: those that are stated for calls
  // Of the search for each division of the devices, two units where nothing is said. No bound is
  // computed and none of the evaluator holds; once a plan is found and all of the time has passed
  // (`late`) no other division is searched.
  SearchOptions search = {.units = {.max_units = 2, .stop = {}, .elapsed_s = {}}, .late = {}};
  Judge judge = {};  // of plans with their staleness; empty: simulator_judge()
};

struct AheadProposal {
  int64_t staleness = 0;
  double step_s = 0;                // of the synchronous plan
  std::optional<JudgedPlan> ahead;  // the fastest that fits; none: none does
  bool within = false;              // a placement that was stated
  bool wins() const { return ahead && ahead->verdict.step_s < step_s; }
};

// The last 1, 2, 4, ... devices generate, or those of a stated mesh; training has the longer run of
// devices beside them, the other calls either. Most devices first: divisions in which a call alone
// takes longer than the fastest plan so far are not searched. The same for everybody. Nothing where
// the graph does not generate, or cannot ahead. Plans leave the margin of the search, where some
// do. `step_s`: of the best synchronous plan, by
// simulator_judge(). Errors: those of the judge that are not about one plan alone.
Result<std::optional<AheadProposal>> propose_ahead(const PlanningProblem& problem,
                                                   const CallPricer& pricer,
                                                   const Calibration& calibration, double step_s,
                                                   const AheadOptions& options);

// One line that says by how much, or to stay synchronous; it ends with a line break.
std::string ahead_text(const AheadProposal& proposal);
OrderedJson ahead_json(const AheadProposal& proposal);

}  // namespace braid::inline search
