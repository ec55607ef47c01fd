// Random walks over schedules: two neighbours of a node change places, and the longest ways to and
// from them tell at once, without a look at the rest, how long the schedule would be. Millions of
// proposals per second, whatever the size of the problem. Keeps scratch space: one per thread.
//
// Invariant: the ends and ways of all ops are those of the present order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "fuse/op_graph.h"

namespace braid::inline fuse {

struct SwapWalkOptions {
  double memory_cap = 0;         // of every node
  double deadline = 0;           // of the schedule
  int64_t work = 0;              // proposals, and ops whose times are recomputed
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
  // One op, in one line of the cache. The op behind the last one stands for "none": it ends long
  // before everything and nothing follows it.
  struct Op {
    double end = 0;  // earliest
    double way = 0;  // longest way from its start to the end of the schedule
    double duration = 0;
    double take = 0, release = 0;              // memory
    std::array<int32_t, 2> before{}, after{};  // ops
    int32_t cls = 0;
    int32_t at = 0;  // place in sequence_
  };
  double input_ready(const Op& op) const;
  double output_way(const Op& op) const;
  bool linked_elsewhere(const Op& first, const Op& second) const;
  // Length of the longest way through two neighbours once they have changed places.
  double length_when_swapped(int32_t at) const;
  bool keeps_cap(int32_t at) const;
  double excess(double level, const Op& op) const;
  double change_of_excess(int32_t at) const;
  double total_excess() const;
  void swap_at(int32_t at);
  void queue_end(int32_t op);
  void queue_way(int32_t op);
  void settle_ends();
  void settle_ways();
  // Whether the op at this place and the next are of one node and of different classes.
  bool can_swap(int32_t at) const;

  const OpGraph& graph_;
  const int32_t none_;
  bool has_lag_ = false;
  std::vector<Op> ops_;
  std::vector<int32_t> sequence_;  // the ops of all nodes in order, `none_` before and after each
  std::vector<int32_t> begins_;    // [node] its first place in sequence_; and one past the last
  std::vector<double> level_;      // [place] memory held while its op runs
  std::vector<int32_t> end_queue_, way_queue_;
  std::vector<char> in_end_queue_, in_way_queue_;  // [op]
  double cap_ = 0;
  int64_t work_ = 0;
};

}  // namespace braid::inline fuse
