// Two training calls that run as one: their pipelines fused into one order of passes on the devices
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

// The passes of one mini-batch on a rank, in order: which call, and its pass. REQUIRES: the rank is
// of the calls.
std::vector<FusedPass> fused_passes(const Program& program, const FusedCalls& fused, DeviceId rank);

// Those of them that are of one call. REQUIRES: the frame's call is fused.
std::vector<ScheduleOp> fused_ops(const CallFrame& frame, DeviceId rank);

// Whether an op is of a pass: it, its messages, or the loss that it begins with.
bool is_of_pass(const Op& op, const ScheduleOp& pass);

// Whether no rank has more micro-batches than the order has places for; it may have fewer.
bool fits_order(const Partition& partition, const Strategy& strategy);

// What is wrong with the order: a pass that is missing, twice or on another node than its stage, or
// passes that wait for each other in a circle.
Status verify_order(const Program& program, const FusedCalls& fused);

}  // namespace braid::inline program
