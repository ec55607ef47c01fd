// Which instruction of a training region (program/program.h) runs an op: said once, for whoever
// executes, emulates or verifies the ops of a mini-batch. Pure; thread-safe.
#pragma once

#include "program/op.h"

namespace braid::inline program {

// The parts of a mini-batch in their order, each with its instruction.
enum class MinibatchPart {
  kPasses,      // schedule: zero, passes, messages, and sums among the ranks of one replica
  kReductions,  // reduce: sums among ranks that hold the same parameters
  kAgreement,   // agree: norm, agreement
  kUpdate,      // optimizer step: the update, and the way of the weights back to who holds them
};
MinibatchPart part_of_minibatch(const Expansion& ops, const Op& op);

}  // namespace braid::inline program
