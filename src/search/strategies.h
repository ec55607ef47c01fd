// All strategies that a call may have on a mesh of a given size. Pure.
#pragma once

#include <vector>

#include "search/price.h"

namespace braid::inline search {

// What plans may have and `braid train` does not execute yet (plan/executable.h).
struct FurtherAxes {
  bool context = false;  // cp of training and inference
  bool experts = false;  // ep and expert_tp of models with experts
  bool any() const { return context || experts; }
  friend bool operator==(const FurtherAxes&, const FurtherAxes&) = default;
};
// What of it a strategy has.
FurtherAxes axes_of(const Strategy& strategy);

// Legal strategies (plan/validate.h) of a call on `devices` devices, `per_node` of them on a node:
// every dp x tp x pp with tensor parallelism inside a node, and with each of them
//   training:   ZeRO 0 to 3 (2 and 3 without pipeline), recomputation, micro-batches of 1, 2, 4,
//   ...
//               sequences, interleaving by 2 and 4, all forwards first (GPipe);
//   inference:  ZeRO 0 and 3, micro-batches of 1, 2, 4, ... sequences;
//   generation: all sequences of a replica at once, a half, a quarter, ... of them.
// With further axes also every dp x cp, and experts in every number of parts, each on as many
// devices as share the other tensors or on one.
std::vector<Strategy> strategies_of(const PlanningProblem& problem, const Call& call, int devices,
                                    int per_node, const FurtherAxes& axes = {});

}  // namespace braid::inline search
