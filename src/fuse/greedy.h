// The greedy schedule that RLHFuse's search starts from (Zhong et al., arXiv 2409.13221, and its
// public solver). Pure.
#pragma once

#include "fuse/op_graph.h"

namespace braid::inline fuse {

// Again and again takes, over all nodes, the ready op that can start earliest, backwards before
// others. An op of a pipeline must not delay a ready op of a larger one on its node (larger: more
// time per micro-batch over all stages). Ignores the memory limit, as the published one does.
ClassOrder greedy_order(const OpGraph& graph);

}  // namespace braid::inline fuse
