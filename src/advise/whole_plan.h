// What `braid plan` searches beside devices, layouts and residency (search/whole.h): fused updates,
// a hand-over, predicted lengths, rollouts ahead. Values; one thread calls it.
#pragma once

#include <optional>
#include <string>

#include "advise/planning.h"
#include "base/json.h"
#include "search/beyond_train.h"

namespace braid::inline advise {

// Whether request and graph leave more to search than devices, layouts and residency.
bool searches_parts(const PlanRequest& request, const PlanningProblem& problem);

// REQUIRES: `planning` has its plan without parts, searched since `watch` began. Each of the
// searches takes as many units as that one did, a few at most, and keeps to its margin, to
// `--keep`, to plan.staleness and to the time limit. Errors: those of search_whole().
Result<WholeProposal> propose_whole(const PlanRequest& request, const Planning& planning,
                                    const optimize::Stopwatch& watch);

// What rollouts ahead of training would bring, where plan.staleness allows them: as propose_whole()
// found it, or, for --explain, searched now with the same limits, of which a unit for each division
// of the devices is the least. Nothing: neither.
Result<std::optional<AheadProposal>> rollouts_ahead(const PlanRequest& request,
                                                    const Planning& planning);

// What context and expert parallelism would bring, which `braid train` does not execute: searched
// on the devices that calls of the proposed plan have, with few units, and where the time limit has
// passed with a tenth of it. Nothing: no call could have them, or parts of plans are not searched.
// Errors: those of the search.
Result<std::optional<BeyondProposal>> beyond_train(const PlanRequest& request,
                                                   const Planning& planning);

// Lines that say what was searched and what not, and what parts of the plan save.
std::string searched_text(const Planning& planning, const PlanRequest& request);
std::string parts_text(const Planning& planning);
// "24.343 s (gap 0.52 %)", of the plan that is proposed, and the bound of the others.
std::string bound_text(const Planning& planning);
// No plan takes less, of those without parts where the proposed one has none.
double bound_s(const Planning& planning);
OrderedJson whole_json(const Planning& planning);

}  // namespace braid::inline advise
