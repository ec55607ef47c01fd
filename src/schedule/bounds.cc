#include "schedule/bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

namespace braid {
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

// A stage's part of a node's memory: the pass that takes it and the one that releases it, in the
// direction of time that is looked at.
struct Holding {
  const OpClass* take = nullptr;
  const OpClass* release = nullptr;
  double memory = 0;
};

// How long one node must be idle at the beginning of any schedule, because nothing has arrived or
// because the memory is full before anything can be released.
class StartIdle {
 public:
  // heads: [op]; holdings: of the node, each pipeline's in the order in which a micro-batch takes
  // them.
  StartIdle(const OpGraph& graph, int32_t node, const std::vector<double>& heads,
            std::vector<Holding> holdings)
      : graph_(graph), heads_(heads), holdings_(std::move(holdings)) {
    for (const int32_t c : graph.of_node[node]) {
      const OpClass& one = graph.classes[c];
      for (int32_t op = one.first_op; op < one.first_op + one.count; ++op)
        jobs_.push_back({heads[op], &one});
    }
    std::sort(jobs_.begin(), jobs_.end(),
              [](const Arrival& a, const Arrival& b) { return a.head < b.head; });
  }

  // Moments, and the least idle time before each.
  std::vector<std::pair<double, double>> moments() const {
    const double first = jobs_.empty() ? 0 : jobs_.front().head;
    std::vector<std::pair<double, double>> out = {{first, first}};
    for (const Holding& one : holdings_) {
      const double until = first_head(*one.release);
      out.push_back({until, until - most_work(until)});
    }
    return out;
  }

 private:
  struct Arrival {
    double head = 0;
    const OpClass* cls = nullptr;
  };

  double first_head(const OpClass& one) const {
    return *std::min_element(heads_.begin() + one.first_op,
                             heads_.begin() + one.first_op + one.count);
  }

  // Whether no micro-batch can have released it at a moment.
  bool is_kept(const Holding& one, double until) const {
    return one.memory > 0 && first_head(*one.release) + one.release->duration > until;
  }

  // Work of all ops, and without those that take memory which is kept plus what of these fits.
  double most_work(double until) const {
    std::vector<Holding> kept;
    for (const Holding& one : holdings_)
      if (is_kept(one, until)) kept.push_back(one);
    const double all = arrived_work(until, {});
    return std::min(all, arrived_work(until, kept) + work_that_fits(kept));
  }

  double arrived_work(double until, const std::vector<Holding>& without) const {
    double now = 0, work = 0;
    for (const Arrival& job : jobs_) {
      if (std::any_of(without.begin(), without.end(),
                      [&](const Holding& one) { return one.take == job.cls; }))
        continue;
      now = std::max(now, job.head);
      if (now >= until) break;
      const double ran = std::min(job.cls->duration, until - now);
      now += ran;
      work += ran;
    }
    return work;
  }

  // Parts of a micro-batch that are taken one after the other.
  struct Piece {
    double work = 0, memory = 0;
    int32_t count = 0;
  };

  // The most work of these passes that fits into the memory, in fractions of passes. A later stage
  // of a pipeline holds no more micro-batches than an earlier one: a stage with more work per
  // memory than those before it counts with them.
  double work_that_fits(const std::vector<Holding>& kept) const {
    std::vector<Piece> pieces;
    int32_t pipeline = -1;
    size_t first = 0;
    for (const Holding& one : kept) {
      if (one.take->pipeline != pipeline) first = pieces.size();
      pipeline = one.take->pipeline;
      Piece piece{one.take->duration, one.memory, one.take->count};
      while (pieces.size() > first &&
             piece.work * pieces.back().memory > pieces.back().work * piece.memory) {
        piece.work += pieces.back().work;
        piece.memory += pieces.back().memory;
        pieces.pop_back();
      }
      pieces.push_back(piece);
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.work * b.memory > b.work * a.memory; });
    double room = graph_.memory_limit + graph_.memory_rounding, work = 0;
    for (const Piece& piece : pieces) {
      const double some = std::min(double(piece.count), room / piece.memory);
      work += some * piece.work;
      room -= some * piece.memory;
    }
    return work;
  }

  const OpGraph& graph_;
  const std::vector<double>& heads_;
  const std::vector<Holding> holdings_;
  std::vector<Arrival> jobs_;  // by ascending head
};

// Holdings of each node.
std::vector<std::vector<Holding>> holdings_of(const OpGraph& graph) {
  std::vector<Holding> by_holder(graph.num_holders);
  for (const OpClass& one : graph.classes) {
    Holding& holding = by_holder[one.holder];
    const bool forward = one.kind == PassKind::kForward;
    (forward ? holding.take : holding.release) = &one;  // the weights' pass comes last
    holding.memory += one.take;
  }
  std::vector<std::vector<Holding>> out(graph.nodes);
  for (const Holding& holding : by_holder) out[holding.take->node].push_back(holding);
  return out;
}

// Load of a node and its idle time: at both ends, where these are apart from each other in every
// schedule because none is shorter than `known`.
double idle_bound(const OpGraph& graph, const Windows& windows, int32_t node,
                  std::vector<Holding> holdings, double known) {
  double load = 0, bound = 0;
  for (const int32_t c : graph.of_node[node])
    load += graph.classes[c].count * graph.classes[c].duration;
  const auto begin = StartIdle(graph, node, windows.head, holdings).moments();
  for (Holding& one : holdings) std::swap(one.take, one.release);
  const auto end = StartIdle(graph, node, windows.tail, holdings).moments();
  for (const auto& [from, idle_before] : begin)
    for (const auto& [to, idle_after] : end) {
      const bool apart = from + to <= known;
      const double idle = apart ? idle_before + idle_after : std::max(idle_before, idle_after);
      bound = std::max(bound, load + idle);
    }
  return bound;
}

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
  const std::vector<std::vector<Holding>> holdings = holdings_of(graph);
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
    for (int32_t node = 0; node < graph.nodes; ++node)
      bound = std::max(bound, idle_bound(graph, windows, node, holdings[node], bound));
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

}  // namespace braid
