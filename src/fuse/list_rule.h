// List scheduling of pipeline ops by a rule of a few numbers, and the random rules that a search
// starts from. A simulator keeps scratch space: one per thread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "fuse/op_graph.h"

namespace braid::inline fuse {

// What a node runs next when it is free: among the ops that are ready, or will be within
// `patience`, the one with the least priority number; a forward only while its stage holds fewer
// than `quota` micro-batches and the node's memory limit allows it. With shares, a stage also
// leaves what its pipeline's later stages on the node will need, and what the other pipelines may
// still take of their shares, so that no op waits for memory that nothing will release. A node
// waits for an op that is not ready yet if that one has the least number. With urgency, the more
// time an op's pipeline would still need if it ran alone, the less the number. A rule may have a
// memory cap of its own below the problem's limit.
struct ListRule {
  std::vector<double> priority;  // [class]
  std::vector<int32_t> quota;    // [holder]: (pipeline, stage)
  std::vector<double> patience;  // [node]
  std::vector<double> share;     // [pipeline] of the memory limit; empty: no shares
  double urgency = 0;            // off the number of an op with the longest rest of all
  double cap = std::numeric_limits<double>::infinity();  // of every node's memory
};

struct ListOutcome {
  double makespan = 0;
  int32_t missing = 0;  // ops that no node could run under quotas and memory limit
  double peak = 0;      // of memory, highest of all nodes
};

class ListSimulator {
 public:
  explicit ListSimulator(const OpGraph& graph);

  // Runs a rule; fills `order` (kept in the object until the next run). A run that cannot end below
  // `limit` may end early with a makespan of at least limit.
  ListOutcome run(const ListRule& rule, double limit);
  const ClassOrder& order() const { return order_; }

 private:
  struct Event {
    double time;
    int32_t node;
  };
  struct State {  // of a class
    int32_t next = 0;
    int32_t known = 0;  // ops whose inputs are all scheduled
  };
  void find_needs();
  size_t place_of(const OpClass& one) const {
    return size_t(one.pipeline) * graph_.nodes + one.node;
  }
  void reset();
  void push(double time, int32_t node);
  Event pop();
  // The class to run at `now` and when; -1: none yet.
  struct Choice {
    int32_t cls = -1;
    double start = 0;
  };
  Choice choose(const ListRule& rule, int32_t node, double now) const;
  bool fits(const ListRule& rule, const OpClass& one) const;
  bool leaves_shares(const ListRule& rule, const OpClass& one) const;
  void dispatch(int32_t cls, double start);
  void tell_successors(const OpClass& one, int32_t k, double end);

  const OpGraph& graph_;
  ClassOrder order_;
  std::vector<State> states_;
  std::vector<double> ready_;       // [op]
  std::vector<int8_t> inputs_;      // [op] inputs not scheduled yet
  std::vector<int8_t> all_inputs_;  // [class]
  std::vector<double> free_at_;     // [node]
  std::vector<double> held_;        // [node] memory
  std::vector<int32_t> alive_;      // [holder]
  // Memory of each pipeline on each node, [pipeline * nodes + node]: of one micro-batch, held, and
  // still to be taken; of all pipelines' one micro-batch, [node]; and what later stages of the
  // pipeline on the node take for a micro-batch, [class].
  std::vector<double> need_, held_of_, untaken_, all_untaken_, needs_, later_;
  std::vector<Event> events_;       // heap by (time, node)
  std::vector<double> load_;        // [node] of all ops
  std::vector<double> rest_;        // [node] of the ops that are still to run
  std::vector<double> least_tail_;  // [node] of any class
  std::vector<double> period_;      // [pipeline] of a micro-batch, when it runs alone without end
  double longest_rest_ = 0;         // of any op, when its pipeline runs alone
  double cap_ = 0;                  // of the rule or of the problem
  double makespan_ = 0, peak_ = 0;
};

// A rule to start from: priorities by pipeline and pass, quotas around those of 1F1B, little
// patience; all by chance.
ListRule random_rule(const OpGraph& graph, RandomStream& random);

// Changes one or a few numbers of the rule.
void mutate_rule(const OpGraph& graph, ListRule& rule, RandomStream& random);

}  // namespace braid::inline fuse
