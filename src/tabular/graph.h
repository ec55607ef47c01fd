// The graph of one iteration of a tabulated problem, parameter moves included, and its division
// into segments.
//
// A *segment* is a set of nodes with a barrier before and after it: every node of earlier segments
// is an ancestor of every node of the segment. List scheduling then treats segments one after the
// other, each from an empty queue:
//   * all nodes before a barrier have ended when the last of them is popped, so no device is busy
//   later than that;
//   * the nodes that open the next segment depend on all last nodes of the segment before it (its
//   sinks), so the last sink
//     popped makes all of them ready at once and pushes them, into an empty heap, in the order of
//     its successor list;
//   * that order must be the same in the list of every sink; where it is not, no barrier is
//   declared.
// Hence cost = iterations * sum over segments of the makespan of the segment alone, since the edges
// from sinks to sources make the border between two iterations a barrier in every problem.
// Structure is read off the transitive closure of depends_on and never assumed. Pure values.
#pragma once

#include <vector>

#include "tabular/problem.h"

namespace braid::tabular {

// A call, or one of the four parameter moves around a train call.
struct GraphNode {
  int owner = 0;                // call whose devices the node occupies
  int pair = -1;                // index into move_pairs, -1 for a call
  bool back = false;            // a move from the train call's layout to its partner's
  std::vector<int> successors;  // in the order of the format (rule 4)
};

struct Segment {
  std::vector<int> nodes;    // topological order
  std::vector<int> entries;  // nodes without predecessors in the segment, in the order of pushing
  uint32_t calls = 0;        // mask: the calls whose choice the makespan depends on
  // No edges inside: all nodes are ready at once and the order of popping is that of equal keys,
  // whatever the durations.
  bool flat = false;
};

struct IterationGraph {
  std::vector<MovePair> pairs;
  std::vector<GraphNode> nodes;  // node c < number of calls is call c
  std::vector<Segment> segments;
};

IterationGraph build_graph(const Problem& problem);

}  // namespace braid::tabular
