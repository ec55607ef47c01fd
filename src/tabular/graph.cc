#include "tabular/graph.h"

#include <algorithm>
#include <bitset>
#include <numeric>

namespace braid::tabular {
namespace {

constexpr size_t kMaxNodes = 5 * kMaxCalls;  // a call and at most four moves for it
using NodeSet = std::bitset<kMaxNodes>;

void add_moves(IterationGraph& graph, int pair, const std::vector<int>& dependencies) {
  const auto [train, other] = graph.pairs[pair];
  const int first = static_cast<int>(graph.nodes.size());
  const std::vector<int> after = graph.nodes[train].successors;
  graph.nodes.push_back({.owner = other, .pair = pair, .back = false, .successors = {train}});
  graph.nodes.push_back({.owner = train, .pair = pair, .back = false, .successors = {train}});
  graph.nodes.push_back({.owner = train, .pair = pair, .back = true, .successors = after});
  graph.nodes.push_back({.owner = other, .pair = pair, .back = true, .successors = after});
  graph.nodes[train].successors = {first + 2, first + 3};
  for (const int before : dependencies) {
    std::vector<int>& list = graph.nodes[before].successors;
    list.erase(std::find(list.begin(), list.end(), train));
    list.insert(list.end(), {first, first + 1});
  }
}

std::vector<NodeSet> find_ancestors(const IterationGraph& graph) {
  std::vector<NodeSet> ancestors(graph.nodes.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (const int next : graph.nodes[n].successors) {
        const NodeSet before = ancestors[next];
        ancestors[next] |= ancestors[n];
        ancestors[next].set(n);
        changed |= ancestors[next] != before;
      }
  }
  return ancestors;
}

NodeSet as_set(const std::vector<int>& order, size_t begin, size_t end) {
  NodeSet set;
  for (size_t i = begin; i < end; ++i) set.set(order[i]);
  return set;
}

// The opening nodes after a barrier as one sink pushes them.
std::vector<int> opened_by(const GraphNode& sink, const NodeSet& opening) {
  std::vector<int> order;
  for (const int next : sink.successors)
    if (opening[next]) order.push_back(next);
  return order;
}

class Divider {
 public:
  explicit Divider(IterationGraph& graph) : graph_(graph), ancestors_(find_ancestors(graph)) {
    order_.resize(graph.nodes.size());
    std::iota(order_.begin(), order_.end(), 0);
    // A node has more ancestors than each of its ancestors, so this order is topological, and
    // whatever lies before a barrier is a prefix of it.
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return ancestors_[a].count() < ancestors_[b].count(); });
  }

  void divide(std::vector<int> entries) {
    size_t begin = 0;
    for (size_t end = 1; end < order_.size(); ++end) {
      std::vector<int> next_entries;
      if (!is_barrier(end, next_entries)) continue;
      add_segment(begin, end, std::move(entries));
      entries = std::move(next_entries);
      begin = end;
    }
    add_segment(begin, order_.size(), std::move(entries));
  }

 private:
  bool is_barrier(size_t border, std::vector<int>& opening_order) const {
    const NodeSet before = as_set(order_, 0, border);
    NodeSet opening;
    for (size_t i = border; i < order_.size(); ++i) {
      const NodeSet& ancestors = ancestors_[order_[i]];
      if ((ancestors & before) != before) return false;
      if (ancestors == before) opening.set(order_[i]);
    }
    return same_order_from_every_sink(border, opening, opening_order);
  }

  bool same_order_from_every_sink(size_t border, const NodeSet& opening,
                                  std::vector<int>& opening_order) const {
    NodeSet inner;
    for (size_t i = 0; i < border; ++i) inner |= ancestors_[order_[i]];
    bool first = true;
    for (size_t i = 0; i < border; ++i) {
      if (inner[order_[i]]) continue;
      std::vector<int> order = opened_by(graph_.nodes[order_[i]], opening);
      if (order.size() != opening.count() || (!first && order != opening_order)) return false;
      opening_order = std::move(order);
      first = false;
    }
    return true;
  }

  void add_segment(size_t begin, size_t end, std::vector<int> entries) {
    Segment segment;
    segment.nodes.assign(order_.begin() + begin, order_.begin() + end);
    segment.entries = std::move(entries);
    const NodeSet inside = as_set(order_, begin, end);
    segment.flat = true;
    for (const int n : segment.nodes) {
      const GraphNode& node = graph_.nodes[n];
      segment.calls |= uint32_t{1} << node.owner;
      if (node.pair >= 0) {
        segment.calls |= uint32_t{1} << graph_.pairs[node.pair].train;
        segment.calls |= uint32_t{1} << graph_.pairs[node.pair].other;
      }
      for (const int next : node.successors) segment.flat &= !inside[next];
    }
    graph_.segments.push_back(std::move(segment));
  }

  IterationGraph& graph_;
  std::vector<NodeSet> ancestors_;
  std::vector<int> order_;
};

}  // namespace

IterationGraph build_graph(const Problem& problem) {
  IterationGraph graph;
  graph.pairs = move_pairs(problem);
  const int num_calls = static_cast<int>(problem.calls.size());
  for (int c = 0; c < num_calls; ++c) graph.nodes.push_back({.owner = c, .successors = {}});
  std::vector<int> sources;
  for (int c = 0; c < num_calls; ++c) {
    for (const int before : problem.calls[c].depends_on)
      graph.nodes[before].successors.push_back(c);
    if (problem.calls[c].depends_on.empty()) sources.push_back(c);
  }
  for (size_t p = 0; p < graph.pairs.size(); ++p)
    add_moves(graph, static_cast<int>(p), problem.calls[graph.pairs[p].train].depends_on);
  Divider(graph).divide(std::move(sources));
  return graph;
}

}  // namespace braid::tabular
