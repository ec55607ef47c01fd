// What a rank can be told to do: the one vocabulary of lists (program/program.h) and of the bodies
// of their calls (program/op.h). An instruction of a list is one op, or a run of ops of a call's
// body; each of those says in Op::run which kind of instruction executes it.
#pragma once

#include <cstdint>

namespace braid::inline program {

enum class OpKind : int8_t {
  // Of a call's body.
  kForward,        // a micro-batch through a body; the head's log-probs, values or scores included
  kBackward,       // the same body backwards; adds to the gradients
  kLoss,           // of a micro-batch, over the totals of its mini-batch: starts the backward
  kSend,           // an activation, or its gradient, to `peer`
  kReceive,        // the same on the other side
  kBroadcast,      // from the first member of the group
  kAllGather,      // slices to all members
  kAllReduce,      // sums, to all members
  kReduceScatter,  // sums, to each member its slice
  kAllToAll,       // of each member, a part to every other; only inside forward and backward
  kNorm,           // squares of the gradients that this rank owns, summed over the group
  kAgree,          // the group decides alike: is all finite, was memory there, does training stop
  kZero,           // gradients to zero
  kUpdate,         // main weights, moments and weights of the owned slices, unless refused
  kSample,         // the next token of each sequence of a round

  // Runs of a call's body, as instructions. So are, in a region: an agreement (with the norm before
  // it), an update, and all_gather, the way of updated weights to who holds them (ZeRO-1 and 2).
  kCall,    // a call that is no region: its passes where it has a model, its function else
  kPasses,  // of an optimizer step: zero, passes, messages, sums among the ranks of one replica
  kReduce,  // its sums among ranks that hold the same parameters
  kRound,   // of generation: what the scheduler admits, through the model, and the tokens drawn

  // Of a list alone.
  kRegionBegin,  // open a stream region of a call
  kRegionEnd,    // back to the region's begin until its exit condition holds; then what it leaves
  kReallocate,   // weights come from a role's home copy into a copy in another layout
  kShare,        // what a call found goes to all ranks
  kExchange,     // fields that a call wrote go to the ranks of another that reads them
  kLoad,         // state from host memory, or some layers of it
  kOffload,      // state to host memory, unless it is there as it was loaded; frees device memory
  kRelease,      // free a copy of weights
  kRepeat,  // back to a fetch until the exit condition holds: the end of a region that has calls
            // and their regions in it, of which the fetch is the begin

  // Of a generation that is handed over (program/hand_over.h).
  kTally,     // in its region, every few rounds: how many samples are left, on all of its ranks
              // until it is handed over, then on those that went on, by messages among them
  kHandOver,  // some replicas go on with what is left, and all ranks know what has finished
};
const char* op_kind_name(OpKind kind);

// Whether an instruction brings or frees what calls need, and computes nothing.
constexpr bool moves_fields(OpKind kind) {
  return kind == OpKind::kShare || kind == OpKind::kExchange;
}
constexpr bool moves_state(OpKind kind) {
  return kind == OpKind::kLoad || kind == OpKind::kOffload;
}
constexpr bool stands_between_calls(OpKind kind) {
  return moves_fields(kind) || moves_state(kind) || kind == OpKind::kReallocate ||
         kind == OpKind::kRelease || kind == OpKind::kHandOver;
}
// Whether it is the first instruction of a call; whether it lies in a region, its end included.
constexpr bool starts_call(OpKind kind) {
  return kind == OpKind::kCall || kind == OpKind::kRegionBegin;
}
constexpr bool inside_region(OpKind kind) {
  return !stands_between_calls(kind) && !starts_call(kind) && kind != OpKind::kRepeat;
}

}  // namespace braid::inline program
