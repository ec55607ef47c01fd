// The order of passes on the nodes of a fused group (program/fused.h), walked as nodes walk it:
// each pass when what it waits for has been. Values; pure functions; thread-safe.
#pragma once

#include "base/status.h"
#include "schedule/pipelines.h"

namespace braid::inline program {

// What is wrong with an order: a pass that is missing, twice or on another node than its stage,
// passes that wait for each other in a circle, or messages between two nodes that one sends in
// another order than the other takes them.
Status verify_order(const PipelineProblem& problem, const FusedOrder& order);

// The order in which each node takes the messages of another as they were sent: a pass comes
// forward where what was sent to it comes before what a later pass of its node was given. Changes
// nothing where each stage of a pipeline has a node of its own, as passes of one stage keep the
// order of micro-batches. Errors: as verify_order().
Result<FusedOrder> order_of_messages(const PipelineProblem& problem, const FusedOrder& order);

}  // namespace braid::inline program
