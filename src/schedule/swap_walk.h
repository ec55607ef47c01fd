// Random walks over schedules: two neighbours of a node change places, and the longest ways to and
// from them tell at once, without a look at the rest, how long the schedule would be. Millions of
// proposals per second, whatever the size of the problem. Keeps scratch space: one per thread.
//
// Invariant: heads and tails are the longest ways to and from each op in the present order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "schedule/op_graph.h"

namespace braid {

struct SwapWalkOptions {
  double memory_cap = 0;         // of every node
  double deadline = 0;           // of the schedule
  int64_t work = 0;              // proposals, and heads and tails recomputed
  double first_temperature = 0;  // in units of memory or time; cools in equal ratios
  double last_temperature = 0;
};

class SwapWalk {
 public:
  explicit SwapWalk(const OpGraph& graph);

  // Starts from an order. REQUIRES: ops do not wait for each other in a circle.
  void load(const ClassOrder& order);

  // Anneals memory above the cap, never past the deadline, until there is none (true) or the work
  // is spent. REQUIRES: the present order meets the deadline.
  bool lower_memory(const SwapWalkOptions& options, RandomStream& random);

  // Anneals the makespan, never above the memory cap, until the deadline is met (true) or the work
  // is spent; then the present order is the shortest met. REQUIRES: the present order keeps the
  // cap.
  bool lower_makespan(const SwapWalkOptions& options, RandomStream& random);

  ClassOrder order() const;
  double peak() const;      // by order, of all nodes
  double makespan() const;  // when each op runs as early as it can

 private:
  struct Spot {  // place of an op
    int32_t node = 0;
    int32_t at = 0;
  };
  int32_t op_at(int32_t node, int32_t at) const { return sequence_[node][at]; }
  const OpClass& of(int32_t op) const { return graph_.classes[graph_.class_of[op]]; }
  double input_head(int32_t op) const;
  double output_tail(int32_t op) const;
  double computed_head(int32_t op) const;
  double computed_tail(int32_t op) const;
  bool linked_elsewhere(int32_t first, int32_t second) const;
  bool keeps_deadline(Spot spot, double deadline) const;
  bool keeps_cap(Spot spot) const;
  double excess(double level, const OpClass& one) const;
  double change_of_excess(Spot spot) const;
  void swap_at(Spot spot);
  void settle();
  void settle_heads();
  void settle_tails();
  void set_levels(int32_t node);
  // A place whose op and the next are of different classes; -1 as node: none this time.
  Spot propose(RandomStream& random) const;

  const OpGraph& graph_;
  std::vector<std::vector<int32_t>> sequence_;  // [node][position] op
  std::vector<std::vector<double>> level_;      // [node][position] memory held while it runs
  std::vector<int32_t> position_;               // [op]
  std::vector<double> head_, tail_;             // [op]
  std::vector<int32_t> head_queue_, tail_queue_;
  std::vector<char> in_head_queue_, in_tail_queue_;  // [op]
  std::vector<int32_t> node_starts_;  // cumulative number of ops, to draw a place evenly
  double cap_ = 0;
  int64_t work_ = 0;
};

}  // namespace braid
