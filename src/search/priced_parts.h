// Prices for the parts of a placement that has a name (plan/placement.h): what a call takes alone,
// at its fastest layout. Pure; thread-safe but for what CallPricer says.
#pragma once

#include "plan/placement.h"
#include "search/price.h"
#include "search/space.h"

namespace braid::inline search {

// Of the strategies that `allowed` takes, if given, and that fit. `pricer` must outlive it.
MeshSeconds fastest_seconds(const CallPricer& pricer,
                            std::function<bool(const CallPlan&)> allowed = {});

// What plans have to keep, with parts of a placement that are sized by `seconds`; none: by work.
using MakeConstraints = std::function<Result<PlanConstraints>(const MeshSeconds& seconds)>;

// With parts sized by the prices of layouts that `options` allow and that keep the strategies of
// the constraints. What fits call by call may not fit together: where no plan is found that does,
// by work. Errors: those of `make`.
Result<PlanConstraints> priced_constraints(const MakeConstraints& make, const CallPricer& pricer,
                                           const SpaceOptions& options);

// The same of a configuration (plan_constraints()).
Result<PlanConstraints> priced_constraints(const Config& config, const CallPricer& pricer,
                                           const ReadText& read, const SpaceOptions& options);

}  // namespace braid::inline search
