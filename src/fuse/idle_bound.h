// A lower bound on the makespan under a memory limit: the work of a node and the time that it must
// be idle, at the beginning and at the end. Pure.
#pragma once

#include <vector>

#include "fuse/op_graph.h"

namespace braid::inline fuse {

// No schedule within the memory limit is shorter. heads, tails: [op], the longest chains before and
// after each op; known: another lower bound, of which the result is at least as much. REQUIRES: a
// finite memory limit.
double idle_bound(const OpGraph& graph, const std::vector<double>& heads,
                  const std::vector<double>& tails, double known);

}  // namespace braid::inline fuse
