// What to tell where no plan fits: what would have to change for one to fit. Pure.
#pragma once

#include "advise/planning.h"

namespace braid::inline advise {

// A failure of the search for the plan of this problem, with what would fit where it says that
// nothing does: keys that are in the way, or the smallest cluster. `keep`: as PlanRequest has it.
Status with_smallest_cluster(const Status& status, const Planning& planning, bool keep);

}  // namespace braid::inline advise
