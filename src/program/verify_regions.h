// What verify() checks of the regions of a list. Pure.
#pragma once

#include "program/program.h"

namespace braid::inline program {

// Regions are closed and not nested; two calls that are fused share one, and no others do. In a
// region stands all that its calls consist of, each once, in the order of its phases and in each
// phase in the order of the calls; what an update has changed in parts goes at once to all who hold
// it; and agreements, sums and gathers are among the ranks that they should be.
// REQUIRES: references of the list are within their tables.
Status verify_regions(const Program& program, size_t rank);

}  // namespace braid::inline program
