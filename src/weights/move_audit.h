// What the program lists for a reallocation, as the communicators of a rank count it.
#pragma once

#include "comm/transfer_audit.h"
#include "program/program.h"
#include "samples/call_groups.h"
#include "weights/load_models.h"

namespace braid::inline weights {

// What a rank has of one side of a reallocation.
struct SideOfMove {
  CallId call;  // whose part of the model it is
  const CallGroups& groups;
  const ModelInstance& instance;
};

// Of an entry of the program's reallocations on a member: messages on this channel of the group of
// all ranks, and of slices (ZeRO-3) the gathers of each layer.
// `source`, `target`: null where the rank has nothing of it.
TransferCounts listed_of_reallocation(const Program& program, int32_t entry, DeviceId rank,
                                      int32_t channel, const SideOfMove* source,
                                      const SideOfMove* target);

// Of a role that follows another: the gathers of the source's slices, layer by layer. REQUIRES: its
// weights are slices.
TransferCounts listed_of_following(const Program& program, const SideOfMove& source, DeviceId rank);

// The hashes that come with the messages where they are compared (ReallocateOptions::compare).
TransferCounts digests_of_reallocation(const Program& program, int32_t entry, DeviceId rank,
                                       int32_t channel);

}  // namespace braid::inline weights
