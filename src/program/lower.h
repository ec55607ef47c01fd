// The body of a call as instructions, the same for every layout. Pure.
#pragma once

#include <vector>

#include "program/exchange.h"

namespace braid::inline program {

// The instructions that one call becomes on each of its ranks, without what they wait for.
std::vector<Instruction> lower(const Call& call, CallId id);

// The entry of a call's share among these ranks, added to the program's.
int32_t add_share(CallId id, std::vector<DeviceId> members, Program* program);

}  // namespace braid::inline program
