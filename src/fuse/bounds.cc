#include "fuse/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

#include "fuse/idle_bound.h"

namespace braid::inline fuse {
namespace {

constexpr double kEndOfTime = std::numeric_limits<double>::infinity();

// Earliest starts and longest ways to the end of all ops, without regard to other classes.
struct Windows {
  std::vector<double> head, tail;  // [op]
};

// The most micro-batches of a class's stage that fit into a node at once.
int64_t most_alive(const OpGraph& graph, const OpClass& forward) {
  if (!(forward.take > 0) || std::isinf(graph.memory_limit)) return forward.count;
  const double most = (graph.memory_limit + graph.memory_rounding) / forward.take;
  return std::clamp<int64_t>(static_cast<int64_t>(std::min(most, 1e9)), 1, forward.count);
}

class WindowFinder {
 public:
  explicit WindowFinder(const OpGraph& graph)
      : graph_(graph), releases_(graph.num_holders), takes_(graph.num_holders) {
    windows_.head.assign(graph.num_ops, 0);
    windows_.tail.assign(graph.num_ops, 0);
    for (const OpClass& one : graph.classes) {
      if (one.kind == PassKind::kForward) takes_[one.holder] = &one;
      if (one.kind != PassKind::kForward) releases_[one.holder] = &one;  // the weights' come last
    }
    for (const OpClass* take : takes_) alive_.push_back(most_alive(graph, *take));
  }

  Windows find() {
    for (const auto& classes : graph_.of_pipeline) {
      if (classes.empty()) continue;
      const int32_t count = graph_.classes[classes.front()].count;
      for (int32_t k = 0; k < count; ++k)
        for (const int32_t c : classes) set_head(graph_.classes[c], k);
      for (int32_t k = count - 1; k >= 0; --k)
        for (size_t i = classes.size(); i-- > 0;) set_tail(graph_.classes[classes[i]], k);
    }
    return std::move(windows_);
  }

 private:
  double end(const OpClass& one, int64_t k) const {
    return windows_.head[one.first_op + k] + one.duration;
  }
  double way(const OpClass& one, int64_t k) const {
    return windows_.tail[one.first_op + k] + one.duration;
  }

  void set_head(const OpClass& one, int32_t k) {
    double head = 0;
    if (one.before[0] >= 0)
      head = std::max(head, end(graph_.classes[one.before[0]], k) + one.lag_before[0]);
    if (k > 0) head = std::max(head, end(one, k - 1));
    const int64_t alive = alive_[one.holder];
    if (one.kind == PassKind::kForward && k >= alive)
      head = std::max(head, end(*releases_[one.holder], k - alive));
    windows_.head[one.first_op + k] = head;
  }

  void set_tail(const OpClass& one, int32_t k) {
    double tail = 0;
    for (int i = 0; i < 2; ++i)
      if (one.after[i] >= 0)
        tail = std::max(tail, way(graph_.classes[one.after[i]], k) + one.lag_after[i]);
    if (k + 1 < one.count) tail = std::max(tail, way(one, k + 1));
    const int64_t alive = alive_[one.holder];
    if (&one == releases_[one.holder] && k + alive < one.count)
      tail = std::max(tail, way(*takes_[one.holder], k + alive));
    windows_.tail[one.first_op + k] = tail;
  }

  const OpGraph& graph_;
  std::vector<const OpClass*> releases_, takes_;  // [holder]
  std::vector<int64_t> alive_;                    // [holder]
  Windows windows_;
};

struct Job {
  double head = 0;
  double duration = 0;
  double tail = 0;
  bool operator<(const Job& other) const { return tail < other.tail; }
};

// Makespan of the preemptive schedule that always runs the released job with the longest tail.
double preemptive_bound(std::vector<Job> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.head < b.head; });
  std::priority_queue<Job> released;
  double now = 0, bound = 0;
  size_t next = 0;
  while (next < jobs.size() || !released.empty()) {
    if (released.empty()) now = std::max(now, jobs[next].head);
    while (next < jobs.size() && jobs[next].head <= now) released.push(jobs[next++]);
    Job job = released.top();
    released.pop();
    const double until = next < jobs.size() ? jobs[next].head : kEndOfTime;
    if (until - now < job.duration) {
      job.duration -= until - now;
      now = until;
      released.push(job);
    } else {
      now += job.duration;
      bound = std::max(bound, now + job.tail);
    }
  }
  return bound;
}

double rounded_up(const OpGraph& graph, double bound) {
  if (!(graph.tick > 0)) return bound;
  return on_tick(graph, std::ceil((bound - graph.rounding) / graph.tick) * graph.tick);
}

}  // namespace

double lower_bound(const OpGraph& graph) {
  const Windows windows = WindowFinder(graph).find();
  double bound = 0;
  for (int32_t node = 0; node < graph.nodes; ++node) {
    std::vector<Job> jobs;
    for (const int32_t c : graph.of_node[node]) {
      const OpClass& one = graph.classes[c];
      for (int32_t op = one.first_op; op < one.first_op + one.count; ++op)
        jobs.push_back({windows.head[op], one.duration, windows.tail[op]});
    }
    bound = std::max(bound, preemptive_bound(std::move(jobs)));
  }
  if (std::isfinite(graph.memory_limit))
    bound = std::max(bound, idle_bound(graph, windows.head, windows.tail, bound));
  return rounded_up(graph, bound);
}

double node_load_bound(const OpGraph& graph) {
  double bound = 0;
  for (const auto& classes : graph.of_node) {
    double load = 0;
    for (const int32_t c : classes) load += graph.classes[c].count * graph.classes[c].duration;
    bound = std::max(bound, load);
  }
  return bound;
}

double memory_lower_bound(const OpGraph& graph) {
  std::vector<std::vector<double>> held(graph.of_pipeline.size(),
                                        std::vector<double>(graph.nodes, 0));
  double bound = 0;
  for (const OpClass& one : graph.classes)
    bound = std::max(bound, held[one.pipeline][one.node] += one.take);
  return bound;
}

}  // namespace braid::inline fuse
