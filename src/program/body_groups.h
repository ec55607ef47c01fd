// The groups of ranks that the instructions of a call's body name. Pure; thread-safe.
#pragma once

#include <map>
#include <vector>

#include "program/program.h"

namespace braid::inline program {

// The program's groups that the ranks of a call are in, by device; -1: alone.
using GroupOfRank = std::map<DeviceId, int32_t>;
struct BodyGroups {
  GroupOfRank agree, copies;  // copies: empty where no sums are needed
  GroupOfRank tally = {};     // of a generation
};

// All ranks of a training call agree, of a generation those of a replica. An optimizer step's sums
// and the way of updated weights are among those that hold the same. Groups that the program lacks
// are added to it.
BodyGroups body_groups(CallId id, Program* program);

// Says them in the call's instructions on a device, and adds those of its sums.
void add_groups(const Program& program, CallId id, const BodyGroups& groups, DeviceId device,
                std::vector<Instruction>* body);

}  // namespace braid::inline program
