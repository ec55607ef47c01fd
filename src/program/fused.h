// Two training calls that run as one: their pipelines woven into one order of passes on the devices
// that they share, so that each fills the other's bubbles (Zhong et al., "RLHFuse", arXiv
// 2409.13221, section 5). Values; pure functions; thread-safe.
//
// Devices that work on one stage of either call form a node: where the two calls' tensor-parallel
// groups differ, a node is the larger one and the pipelines of the smaller run side by side on it.
// Nodes that replicas of either call connect form a fused group. All groups of a plan are alike, so
// one problem is solved for all of them. Its times are counts, parameters x tokens, and not
// measurements, so that every rank, the simulator and a later run get the same order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "program/expand.h"
#include "program/program.h"
#include "schedule/pipelines.h"

namespace braid::inline program {

// The two training calls that a plan fuses. Errors: their devices, layouts or order in the graph do
// not allow it.
Result<FusedCalls> fuse_calls(const Program& program, const Fusion& fusion,
                              const PlanningProblem& problem, const std::array<CallId, 2>& calls);

// The passes of one mini-batch on a rank, in order: which call, and its pass.
std::vector<FusedPass> fused_passes(const Program& program, const FusedCalls& fused, DeviceId rank);

// The ops of both calls on a rank, and their common order: which call, and which of its ops. An
// `after` counts within its own call; so do channels.
struct FusedExpansion {
  struct Step {
    int call = 0;
    int32_t op = 0;
    friend bool operator==(const Step&, const Step&) = default;
  };
  std::array<Expansion, 2> calls;
  std::vector<Step> order;
  friend bool operator==(const FusedExpansion&, const FusedExpansion&) = default;
};
FusedExpansion expand(const Program& program, const FusedCalls& fused, DeviceId rank,
                      const std::array<Deal, 2>& deals);

}  // namespace braid::inline program
