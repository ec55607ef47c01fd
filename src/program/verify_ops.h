// What the lists of a call's ops must obey, checked on the lists alone: whoever makes or changes
// them, a missing, doubled or misplaced op is named before anything runs. Pure; thread-safe.
//
// A rank checks its own list, beside those few that it meets: the stages of its pipeline, and of
// each of its groups the member after it. Where every rank of a call finds its own right, all lists
// of the call fit each other, so nobody has to look at all of them.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "program/expand.h"

namespace braid::inline program {

// The ops of a rank of the call.
using OpsOfRank = std::function<const Expansion&(DeviceId rank)>;

// The ops of one rank of an inference or training call:
//  * every micro-batch passes every part of the model once forward and, in training, once backward,
//    which frees what the forward kept; the last part starts its backward with one loss;
//  * a pass waits for the message or the loss that it begins with, and what it gives is sent on;
//  * messages of a channel are received in the order in which they are sent, with as many bytes;
//  * the stages of its pipeline come to their ends if they do everything in the order of their
//    lists;
//  * it lists the same collectives as the next member of each of its groups, in the same order;
//  * where weights are slices, every pass of a part gathers those that it uses;
//  * an optimizer step zeroes its gradients before its passes, and after them every gradient that
//    the update reads has been summed over exactly the ranks that computed a part of it; then norm,
//    agreement and update follow, and what ranks updated in parts reaches all that hold it;
//  * ops read the weights of the last update;
//  * inference ends with one agreement of those who end alike (ends_alike()).
// The error names the rank, the op and the rule. REQUIRES: the rank is in the call's mesh.
Status verify_ops_of(const CallFrame& frame, DeviceId rank, const Partition& partition,
                     const OpsOfRank& ops);
// Of all ranks of its mesh, in the mesh's order.
Status verify_ops(const CallFrame& frame, const std::vector<Expansion>& ranks,
                  const Partition& partition);

// What the lists of a call depend on, beside the sizes of what its ops work on and send: how many
// micro-batches each data-parallel rank has, [mini-batch][dp rank], and which optimizer steps are
// made in parts.
using PartitionShape = std::vector<std::vector<int32_t>>;
PartitionShape shape_of(const Partition& partition);

// The partitions of one call whose lists were found to fit each other.
using VerifiedShapes = std::set<PartitionShape>;

// Changes the ops of a call on their rank, as a fault would; empty: they stay as they are.
using ChangeOps = std::function<void(Expansion* ops)>;

// The ops of a rank: what a runtime executes. For the first partition of a shape they are checked
// with verify_ops_of(), and the shape is added to `verified`; null: they are not checked. `change`
// makes what every rank lists another list. REQUIRES: the rank is in the call's mesh.
Result<Expansion> verified_ops(const CallFrame& frame, DeviceId rank, const Partition& partition,
                               VerifiedShapes* verified, const ChangeOps& change = {});

// The ops of one round of a generation replica, on one of its ranks.
Status verify_round_of(const CallFrame& frame, DeviceId rank, const RoundWork& round,
                       const OpsOfRank& ops);
// As expand() makes them.
Status verify_round_of(const CallFrame& frame, DeviceId rank, const RoundWork& round);
// On all ranks of the call.
Status verify_round(const CallFrame& frame, const std::vector<Expansion>& ranks,
                    const RoundWork& round);

}  // namespace braid::inline program
