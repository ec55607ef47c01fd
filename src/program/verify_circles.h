// Whether ranks wait for each other in a circle: shown for all lists together, once, where the plan
// is made. A part of verify() (program/program.h). Pure.
#pragma once

#include "program/program.h"

namespace braid::inline program {

// Ranks that do everything in the order of their lists, and wait for all who meet them in an
// instruction, come to the ends of their lists. The error names a rank and its instruction.
Status verify_circles(const Program& program);

}  // namespace braid::inline program
