// The body of a call as instructions, the same for every layout. Pure.
#pragma once

#include <vector>

#include "program/program.h"

namespace braid {

// The instructions that one call becomes on each of its ranks, without what they wait for.
std::vector<Instruction> lower(const Call& call, CallId id);

}  // namespace braid
