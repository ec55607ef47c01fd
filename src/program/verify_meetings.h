// What the op lists of ranks that meet must have in common: messages of the stages of a pipeline,
// and collectives of groups. Parts of verify_ops() (program/verify_ops.h). Pure.
#pragma once

#include "program/verify_ops.h"

namespace braid::inline program {

// Every message of a channel that the rank is at an end of is received as it is sent. `others`:
// the ranks of its pipeline.
Status verify_messages(const Expansion& own, const std::vector<DeviceId>& others,
                       const OpsOfRank& ops);

// The rank lists the same collectives as the next member of each of its groups, in the same order,
// of the same tensors and as many bytes.
Status verify_groups(const Expansion& own, const OpsOfRank& ops);

// The stages of a pipeline, each of which does everything in the order of its list and waits for
// what it receives and for the others of its collectives, come to their ends. `ranks`: one of each
// stage, in the order of the stages.
Status verify_no_circle(const std::vector<DeviceId>& ranks, const OpsOfRank& ops);

}  // namespace braid::inline program
