// What context and expert parallelism would bring beside the plan that is proposed. `braid train`
// executes neither yet (plan/executable.h), so that no plan with them takes its place: who plans
// for another system, or wonders what is missing, is told. Values; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "search/search.h"

namespace braid::inline search {

struct BeyondOptions {
  SpaceOptions space;    // what plans may have; axes: those that are asked for
  SearchOptions search;  // of which margin, threads, `late` and `judged`, plans of a round, count
  Judge judge;           // knows fusion and staleness
};

struct BeyondProposal {
  FurtherAxes axes;                // that were tried
  JudgedPlan proposed;             // the plan that takes no part in this
  double without_s = 0;            // the least step without these axes, of all that were judged
  std::optional<JudgedPlan> best;  // the fastest with some of them; none: none fits
  double seconds = 0;              // that the search took, by the caller's clock
  bool wins() const;
};

// What the calls of a plan could have on their devices or on all: context parallelism where several
// train or infer, expert parallelism where a model has experts. `allowed` is asked as
// SpaceOptions::allowed is.
FurtherAxes further_axes(const ExecutionPlan& plan, const PlanningProblem& problem,
                         const std::function<bool(const CallPlan&)>& allowed = {});

// Changes the layouts of single calls of the proposed plan, on the devices that each has there or
// on all, with its fusions and staleness where those are legal, as long as that makes a step
// shorter; in the end calls and residency that matter little are again as proposed. Errors: those
// of the judge that are not about one plan alone, and what the pricer refuses of the proposed plan.
Result<BeyondProposal> propose_beyond_train(const PlanningProblem& problem,
                                            const CallPricer& pricer, const JudgedPlan& proposed,
                                            const BeyondOptions& options);

// "context and expert parallelism"; "" for none.
std::string axes_text(const FurtherAxes& axes);
// By how much a step is shorter and by what, or that no such plan is faster; with a line break.
std::string beyond_text(const BeyondProposal& proposal);
OrderedJson beyond_json(const BeyondProposal& proposal);

}  // namespace braid::inline search
