// Whether gradients are summed over exactly the ranks that computed a part of them. A part of
// verify_ops() (program/verify_ops.h). Pure.
#pragma once

#include "program/expand.h"

namespace braid::inline program {

// Sampled elements of what the rank updates in a mini-batch, the first and last of its share of
// every tensor: the sums that it lists bring together the parts of all who hold the element. Other
// members of its groups list the same sums (verify_groups()), each over its own groups.
Status verify_sums(const CallFrame& frame, const Expansion& own, int32_t minibatch);

// Whether passes of a body use a tensor kind in some of these layers.
bool uses(const OpBody& body, const TensorKind& kind, const Interval& layers);
// Among which ranks of equal parameters the passes of a body do this with those of a kind: routed
// experts have groups of their own where their grid is another. Null: they do not.
const OpGroup* inside_over(const Expansion& e, const std::vector<InsideOp>& inside, OpKind op,
                           const TensorKind& kind);

}  // namespace braid::inline program
