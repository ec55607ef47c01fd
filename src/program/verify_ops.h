// What the lists of a call's ops must obey, checked on the lists alone: whoever makes or changes
// them, a missing, doubled or misplaced op is named before anything runs. Pure; thread-safe.
#pragma once

#include <set>
#include <vector>

#include "program/expand.h"

namespace braid::inline program {

// The ops of an inference or training call on all ranks of its mesh, in the mesh's order:
//  * every micro-batch passes every part of the model once forward and, in training, once backward,
//    which frees what the forward kept; the last part starts its backward with one loss;
//  * messages of a channel are received in the order in which they are sent, with as many bytes;
//  * the members of a group list the same collectives of it in the same order;
//  * where weights are slices, every pass of a part gathers those that it uses;
//  * an optimizer step zeroes its gradients before its passes, and after them every gradient that
//    the update reads has been summed over exactly the ranks that computed a part of it; then norm,
//    agreement and update follow, and what ranks updated in parts reaches all that hold it;
//  * ops read the weights of the last update.
// The error names the rank, the op and the rule.
Status verify_ops(const CallFrame& frame, const std::vector<Expansion>& ranks, const Deal& deal);

// What the lists of a call depend on, beside the sizes of what its ops work on and send: how many
// micro-batches each data-parallel rank has, [mini-batch][dp rank].
using DealShape = std::vector<std::vector<int32_t>>;
DealShape shape_of(const Deal& deal);

// The deals of one call whose lists were found to fit each other.
using VerifiedShapes = std::set<DealShape>;

// The ops of a rank: what a runtime executes. For the first deal of a shape they are checked
// together with those of all other ranks of the call, and the shape is added to `verified`.
// REQUIRES: the rank is in the call's mesh.
Result<Expansion> verified_ops(const CallFrame& frame, DeviceId rank, const Deal& deal,
                               VerifiedShapes* verified);

// The ops of one round of a generation replica, on its ranks.
Status verify_round(const CallFrame& frame, const std::vector<Expansion>& ranks,
                    const RoundWork& round);

}  // namespace braid::inline program
