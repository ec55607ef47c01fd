#include "fuse/greedy.h"

#include <algorithm>
#include <limits>

namespace braid::inline fuse {
namespace {

constexpr double kNoStart = std::numeric_limits<double>::infinity();

class Greedy {
 public:
  explicit Greedy(const OpGraph& graph)
      : graph_(graph),
        next_(graph.classes.size(), 0),
        end_(graph.num_ops, -1),
        free_at_(graph.nodes, 0) {
    for (const auto& classes : graph.of_pipeline) {
      double time = 0;
      for (const int32_t c : classes) time += graph.classes[c].duration;
      size_.push_back(time);
    }
  }

  ClassOrder run() {
    ClassOrder order(graph_.nodes);
    for (int32_t i = 0; i < graph_.num_ops; ++i) {
      const int32_t c = choose();
      const OpClass& one = graph_.classes[c];
      const double end = start_of(c) + one.duration;
      end_[one.first_op + next_[c]++] = end;
      free_at_[one.node] = end;
      order[one.node].push_back(c);
    }
    return order;
  }

 private:
  // When the next op of a class could start; kNoStart when its input is not scheduled yet.
  double start_of(int32_t c) const {
    const OpClass& one = graph_.classes[c];
    const int32_t k = next_[c];
    if (k == one.count) return kNoStart;
    double start = free_at_[one.node];
    for (int i = 0; i < 2; ++i) {
      if (one.before[i] < 0) continue;
      const double end = end_[graph_.classes[one.before[i]].first_op + k];
      if (end < 0) return kNoStart;
      start = std::max(start, end + one.lag_before[i]);
    }
    return start;
  }

  // Whether the op would end after a ready op of a larger pipeline could start on the node.
  bool in_the_way(int32_t c, double start) const {
    const OpClass& one = graph_.classes[c];
    for (const int32_t other : graph_.of_node[one.node]) {
      const OpClass& candidate = graph_.classes[other];
      if (size_[candidate.pipeline] > size_[one.pipeline] &&
          start + one.duration > start_of(other) + graph_.rounding)
        return true;
    }
    return false;
  }

  int32_t choose() const {
    int32_t best = -1;
    double best_start = kNoStart;
    for (size_t c = 0; c < graph_.classes.size(); ++c) {
      const auto id = static_cast<int32_t>(c);
      const double start = start_of(id);
      if (start == kNoStart || start > best_start || in_the_way(id, start)) continue;
      const bool backward = graph_.classes[c].kind == PassKind::kBackward;
      if (start == best_start && !(backward && graph_.classes[best].kind != PassKind::kBackward))
        continue;
      best = id;
      best_start = start;
    }
    return best;
  }

  const OpGraph& graph_;
  std::vector<int32_t> next_;    // [class]
  std::vector<double> end_;      // [op]
  std::vector<double> free_at_;  // [node]
  std::vector<double> size_;     // [pipeline] time of one micro-batch
};

}  // namespace

ClassOrder greedy_order(const OpGraph& graph) { return Greedy(graph).run(); }

}  // namespace braid::inline fuse
