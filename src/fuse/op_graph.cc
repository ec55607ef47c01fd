#include "fuse/op_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace braid::inline fuse {
namespace {

constexpr double kRelativeRounding = 1e-10;

// The largest of 1, 1/2, 1/5, 1/10, ... 1e-6 that divides all values; 0 when none does.
double common_tick(const std::vector<double>& values) {
  for (const double parts : {1.0, 2.0, 4.0, 5.0, 10.0, 20.0, 100.0, 1000.0, 1e4, 1e5, 1e6}) {
    const bool divides = std::all_of(values.begin(), values.end(), [&](double value) {
      const double ticks = value * parts;
      return std::abs(ticks - std::round(ticks)) <= 1e-12 * ticks;
    });
    if (divides) return 1 / parts;
  }
  return 0;
}

class Compiler {
 public:
  explicit Compiler(const PipelineProblem& problem) : problem_(problem) {}

  OpGraph compile() {
    graph_.nodes = problem_.nodes;
    graph_.of_node.resize(problem_.nodes);
    graph_.of_pipeline.resize(problem_.pipelines.size());
    for (size_t p = 0; p < problem_.pipelines.size(); ++p) add_pipeline(static_cast<int32_t>(p));
    add_limits();
    return std::move(graph_);
  }

 private:
  void add_pipeline(int32_t p) {
    const Pipeline& pipeline = problem_.pipelines[p];
    const int32_t last = pipeline.num_stages() - 1;
    visits_.assign(pipeline.num_stages(), 0);
    std::vector<int32_t> seen(problem_.nodes, 0);
    for (int32_t s = 0; s <= last; ++s) visits_[s] = seen[pipeline.stages[s]]++;
    int32_t before = -1;
    for (int32_t s = 0; s <= last; ++s) before = add_class(p, s, PassKind::kForward, before);
    for (int32_t s = last; s >= 0; --s) {
      before = add_class(p, s, PassKind::kBackward, before);
      if (pipeline.split_backward()) add_class(p, s, PassKind::kWeight, before);
    }
    graph_.num_holders += pipeline.num_stages();
    graph_.num_groups += 3 * (1 + *std::max_element(visits_.begin(), visits_.end()));
  }

  int32_t add_class(int32_t p, int32_t stage, PassKind kind, int32_t before) {
    const Pipeline& pipeline = problem_.pipelines[p];
    const auto id = static_cast<int32_t>(graph_.classes.size());
    OpClass added{.pipeline = p, .stage = stage, .kind = kind, .node = pipeline.stages[stage]};
    added.duration = duration(problem_, {p, 0, stage, kind});
    added.count = pipeline.micro_batches;
    added.first_op = graph_.num_ops;
    added.holder = graph_.num_holders + stage;
    added.group = graph_.num_groups + 3 * visits_[stage] + static_cast<int32_t>(kind);
    const PassKind last = pipeline.split_backward() ? PassKind::kWeight : PassKind::kBackward;
    if (kind == PassKind::kForward) added.take = pipeline.memory[stage];
    if (kind == last) added.release = pipeline.memory[stage];
    if (before >= 0) wait(before, id, added);
    graph_.num_ops += added.count;
    graph_.class_of.insert(graph_.class_of.end(), added.count, id);
    graph_.of_node[added.node].push_back(id);
    graph_.of_pipeline[p].push_back(id);
    graph_.classes.push_back(added);
    return id;
  }

  void wait(int32_t before, int32_t id, OpClass& added) {
    OpClass& earlier = graph_.classes[before];
    const double lag = earlier.node == added.node ? 0 : problem_.communication;
    added.before[0] = before;
    added.lag_before[0] = lag;
    added.head = earlier.head + earlier.duration + lag;
    const int slot = earlier.after[0] < 0 ? 0 : 1;
    earlier.after[slot] = id;
    earlier.lag_after[slot] = lag;
  }

  void add_limits() {
    double total = 0;
    std::vector<double> times = {problem_.communication};
    for (size_t c = graph_.classes.size(); c-- > 0;) {
      OpClass& one = graph_.classes[c];
      for (int i = 0; i < 2; ++i) {
        if (one.after[i] < 0) continue;
        const OpClass& next = graph_.classes[one.after[i]];
        one.tail = std::max(one.tail, one.lag_after[i] + next.duration + next.tail);
      }
      total += one.count * (one.duration + one.lag_before[0]);
      times.push_back(one.duration);
    }
    graph_.rounding = total * kRelativeRounding;
    graph_.tick = common_tick(times);
    graph_.memory_limit = problem_.memory_limit.value_or(std::numeric_limits<double>::infinity());
    double memory = 0;
    for (const OpClass& one : graph_.classes) memory += one.take * one.count;
    graph_.memory_rounding = memory * kRelativeRounding;
  }

  const PipelineProblem& problem_;
  OpGraph graph_;
  std::vector<int32_t> visits_;  // [stage] of the pipeline that is being added
};

}  // namespace

OpGraph compile_ops(const PipelineProblem& problem) { return Compiler(problem).compile(); }

OpGraph reversed(const OpGraph& graph) {
  OpGraph mirror = graph;
  mirror.mirrored = !graph.mirrored;
  for (OpClass& one : mirror.classes) {
    std::swap(one.before, one.after);
    std::swap(one.lag_before, one.lag_after);
    std::swap(one.take, one.release);
    std::swap(one.head, one.tail);
  }
  for (auto& classes : mirror.of_pipeline) std::reverse(classes.begin(), classes.end());
  return mirror;
}

double on_tick(const OpGraph& graph, double time) {
  if (!(graph.tick > 0)) return time;
  const double per_unit = std::round(1 / graph.tick);
  return std::round(time * per_unit) / per_unit;
}

FusedOrder to_ops(const OpGraph& graph, const ClassOrder& order) {
  FusedOrder ops(order.size());
  std::vector<int32_t> next(graph.classes.size(), 0);
  for (size_t node = 0; node < order.size(); ++node)
    for (const int32_t c : order[node]) {
      const OpClass& one = graph.classes[c];
      ops[node].push_back({one.pipeline, next[c]++, one.stage, one.kind});
    }
  return ops;
}

OpStarts earliest_starts(const OpGraph& graph, const ClassOrder& order) {
  OpStarts result{std::vector<double>(graph.num_ops, -1), 0};
  std::vector<int32_t> next(graph.classes.size(), 0);  // micro-batch of each class
  std::vector<size_t> position(graph.nodes, 0);
  std::vector<double> free_at(graph.nodes, 0);
  std::vector<int32_t> open(graph.nodes);
  for (int32_t node = 0; node < graph.nodes; ++node) open[node] = node;
  int32_t done = 0;
  while (!open.empty()) {
    const int32_t node = open.back();
    open.pop_back();
    while (position[node] < order[node].size()) {
      const int32_t c = order[node][position[node]];
      const OpClass& one = graph.classes[c];
      const int32_t k = next[c];
      double start = free_at[node];
      bool waits = false;
      for (int i = 0; i < 2; ++i) {
        if (one.before[i] < 0) continue;
        const OpClass& before = graph.classes[one.before[i]];
        waits = waits || next[one.before[i]] <= k;
        const double end = result.start[before.first_op + k] + before.duration;
        start = std::max(start, end + one.lag_before[i]);
      }
      if (waits) break;
      result.start[one.first_op + k] = start;
      free_at[node] = start + one.duration;
      ++next[c];
      ++position[node];
      ++done;
      for (const int32_t after : one.after)
        if (after >= 0 && graph.classes[after].node != node)
          open.push_back(graph.classes[after].node);
    }
  }
  for (const double end : free_at) result.makespan = std::max(result.makespan, end);
  if (done < graph.num_ops) result.makespan = -1;
  return result;
}

PipelineTimeline timeline_of(const OpGraph& graph, const ClassOrder& order) {
  const OpStarts starts = earliest_starts(graph, order);
  BRAID_CHECK(starts.makespan >= 0, "ops wait for each other in a circle");
  const FusedOrder ops = to_ops(graph, order);
  PipelineTimeline timeline(order.size());
  for (size_t node = 0; node < order.size(); ++node)
    for (size_t i = 0; i < order[node].size(); ++i) {
      const OpClass& one = graph.classes[order[node][i]];
      const double start = starts.start[one.first_op + ops[node][i].micro_batch];
      timeline[node].push_back(
          {ops[node][i], on_tick(graph, start), on_tick(graph, start + one.duration)});
    }
  return timeline;
}

std::vector<double> peak_of_order(const OpGraph& graph, const ClassOrder& order) {
  std::vector<double> peaks;
  for (const auto& list : order) {
    double held = 0, peak = 0;
    for (const int32_t c : list) {
      held += graph.classes[c].take;
      peak = std::max(peak, held);
      held -= graph.classes[c].release;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace braid::inline fuse
