#include "fuse/idle_bound.h"

#include <algorithm>
#include <utility>

namespace braid::inline fuse {
namespace {

// A stage's part of a node's memory: the pass that takes it and the one that releases it, in the
// direction of time that is looked at.
struct Holding {
  const OpClass* take = nullptr;
  const OpClass* release = nullptr;
  double memory = 0;
};

// A pass that can start at its head.
struct Arrival {
  double head = 0;
  const OpClass* cls = nullptr;
};

// Of a node, by ascending head.
std::vector<Arrival> arrivals(const OpGraph& graph, int32_t node,
                              const std::vector<double>& heads) {
  std::vector<Arrival> out;
  for (const int32_t c : graph.of_node[node]) {
    const OpClass& one = graph.classes[c];
    for (int32_t op = one.first_op; op < one.first_op + one.count; ++op)
      out.push_back({heads[op], &one});
  }
  std::sort(out.begin(), out.end(),
            [](const Arrival& a, const Arrival& b) { return a.head < b.head; });
  return out;
}

// How long one node must be idle at the beginning of any schedule, because nothing has arrived or
// because the memory is full before anything can be released.
class StartIdle {
 public:
  // heads: [op]; holdings: of the node, each pipeline's in the order in which a micro-batch takes
  // them.
  StartIdle(const OpGraph& graph, int32_t node, const std::vector<double>& heads,
            std::vector<Holding> holdings)
      : graph_(graph),
        heads_(heads),
        holdings_(std::move(holdings)),
        jobs_(arrivals(graph, node, heads)) {}

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
  const std::vector<Arrival> jobs_;  // by ascending head
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
double node_bound(const OpGraph& graph, const std::vector<double>& heads,
                  const std::vector<double>& tails, int32_t node, std::vector<Holding> holdings,
                  double known) {
  double load = 0, bound = 0;
  for (const int32_t c : graph.of_node[node])
    load += graph.classes[c].count * graph.classes[c].duration;
  const auto begin = StartIdle(graph, node, heads, holdings).moments();
  for (Holding& one : holdings) std::swap(one.take, one.release);
  const auto end = StartIdle(graph, node, tails, holdings).moments();
  for (const auto& [from, idle_before] : begin)
    for (const auto& [to, idle_after] : end) {
      const bool apart = from + to <= known;
      const double idle = apart ? idle_before + idle_after : std::max(idle_before, idle_after);
      bound = std::max(bound, load + idle);
    }
  return bound;
}

}  // namespace

double idle_bound(const OpGraph& graph, const std::vector<double>& heads,
                  const std::vector<double>& tails, double known) {
  const std::vector<std::vector<Holding>> holdings = holdings_of(graph);
  double bound = known;
  for (int32_t node = 0; node < graph.nodes; ++node)
    bound = std::max(bound, node_bound(graph, heads, tails, node, holdings[node], bound));
  return bound;
}

}  // namespace braid::inline fuse
