// Lower bounds on the makespan of a pipeline problem. Pure.
#pragma once

#include "fuse/op_graph.h"

namespace braid::inline fuse {

// No schedule within the memory limit is shorter. The largest over nodes of the preemptive
// one-machine bound (Jackson 1955; Carlier, EJOR 11, 1982), in which each op comes no earlier than
// the longest chain before it and is followed by the longest chain after it. Chains go along a
// micro-batch, along the ops of a class, and, with a memory limit, from the release of micro-batch
// k - q to the forward of micro-batch k, q being the most that fit. And with a memory limit the
// load of a node and its idle time at both ends, where it has run all forwards that fit and the
// first backward is not there yet, or the same backwards in time. This is at least every bound of
// RLHFuse's solver (Zhong et al., arXiv 2409.13221: one pipeline alone, the load of a node, head +
// load + tail). Rounded up to the problem's tick.
double lower_bound(const OpGraph& graph);

// The load of the busiest node: what the makespan is at least without any waiting.
double node_load_bound(const OpGraph& graph);

// No schedule's peak memory is lower: what one micro-batch holds on a node at once.
double memory_lower_bound(const OpGraph& graph);

}  // namespace braid::inline fuse
