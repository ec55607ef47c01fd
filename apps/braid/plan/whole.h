// `braid plan --whole`: the search over everything that a plan may say (search/whole.h), beside the
// plan that has neither fusion nor staleness. Values; one thread calls it.
#pragma once

#include <string>

#include "base/json.h"
#include "braid/plan/planning.h"
#include "search/whole.h"

namespace braid {

// What the whole search found, and whether it is worth proposing.
struct WholeProposal {
  WholeFound found;
  double without_s = 0;  // step of the fastest plan without fusion and staleness, of both searches
  double bound_s = 0;    // no plan with any of it takes less

  bool wins() const { return found.best.verdict.step_s < (1 - kLeastGainOfParts) * without_s; }
};

// REQUIRES: `planning` has its plan. Each of the searches takes as many units as that plan did, and
// keeps to its margin, to `--keep` and to plan.staleness. Errors: those of search_whole().
Result<WholeProposal> propose_whole(const PlanArguments& arguments, const Planning& planning);

// The plan to write: the whole search's where it wins, else the one without.
const ExecutionPlan& proposed_plan(const Planning& planning, const WholeProposal* whole);

std::string whole_text(const Planning& planning, const WholeProposal& whole);
OrderedJson whole_json(const Planning& planning, const WholeProposal& whole);

}  // namespace braid
