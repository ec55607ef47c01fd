#include "tabular/model.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "base/text.h"
#include "tabular/moves.h"

namespace braid::tabular {
namespace {

// ---- Segments
// ----------------------------------------------------------------------------------------------------

// The order in which equal keys pushed as 0, 1, ..., count - 1 leave the heap.
std::vector<int32_t> equal_key_order(const std::vector<int32_t>& entries) {
  ReadyHeap heap;
  for (const int32_t entry : entries) heap.push({.ready = 0, .node = entry});
  std::vector<int32_t> order;
  while (!heap.empty()) order.push_back(heap.pop().node);
  return order;
}

int32_t position(const std::vector<int32_t>& list, int32_t value) {
  return static_cast<int32_t>(std::find(list.begin(), list.end(), value) - list.begin());
}

CompiledSegment compile_segment(const IterationGraph& graph, const Segment& segment) {
  CompiledSegment compiled;
  compiled.calls = segment.calls;
  std::vector<int32_t> local(graph.nodes.size(), -1);
  for (size_t i = 0; i < segment.nodes.size(); ++i)
    local[segment.nodes[i]] = static_cast<int32_t>(i);
  for (const int n : segment.nodes) {
    const GraphNode& node = graph.nodes[n];
    if (std::count(compiled.owners.begin(), compiled.owners.end(), node.owner) == 0)
      compiled.owners.push_back(node.owner);
    SegmentNode out{.call = node.owner,
                    .owner = position(compiled.owners, node.owner),
                    .pair = node.pair,
                    .back = node.back,
                    .successors = {}};
    for (const int next : node.successors)
      if (local[next] >= 0 && next != n) out.successors.push_back(local[next]);
    compiled.nodes.push_back(std::move(out));
  }
  for (const SegmentNode& node : compiled.nodes)
    for (const int32_t next : node.successors) ++compiled.nodes[next].num_predecessors;
  for (const int entry : segment.entries) compiled.entries.push_back(local[entry]);
  if (segment.flat) compiled.flat_order = equal_key_order(compiled.entries);
  return compiled;
}

// ---- Candidates
// --------------------------------------------------------------------------------------------------

// Which inequalities dominance may use for a call (see the header).
struct Monotone {
  bool devices = true;
  bool moves = true;
  bool time = true;
};

std::vector<Monotone> find_monotone(const IterationGraph& graph, int num_calls) {
  std::vector<Monotone> monotone(num_calls);
  for (const Segment& segment : graph.segments) {
    if (segment.flat) continue;
    for (const int n : segment.nodes) {
      const GraphNode& node = graph.nodes[n];
      monotone[node.owner].devices = false;
      if (node.pair < 0) {
        monotone[node.owner].time = false;
      } else {
        monotone[graph.pairs[node.pair].train].moves = false;
        monotone[graph.pairs[node.pair].other].moves = false;
      }
    }
  }
  return monotone;
}

auto pruning_key(const Candidate& c) {
  return std::make_tuple(c.time_us, c.static_bytes, c.peak_bytes, c.num_devices(), c.option);
}

class Pruner {
 public:
  Pruner(Monotone monotone, const std::vector<bool>& is_free)
      : monotone_(monotone), is_free_(is_free) {}

  // In the order of pruning_key a dominating candidate comes before what it dominates, and
  // dominance is transitive, so that comparing with the kept ones is enough.
  std::vector<Candidate> prune(const std::vector<Candidate>& sorted) {
    std::vector<Candidate> kept;
    std::map<std::pair<int32_t, int32_t>, std::vector<Candidate>> groups;
    for (const Candidate& candidate : sorted) {
      const int32_t devices = monotone_.devices ? 0 : candidate.devices_id;
      const int32_t moves = monotone_.moves ? 0 : candidate.move_class;
      std::vector<Candidate>& group = groups[{devices, moves}];
      if (is_dominated(candidate, group)) continue;
      group.push_back(candidate);
      kept.push_back(candidate);
    }
    return kept;
  }

 private:
  bool is_dominated(const Candidate& candidate, const std::vector<Candidate>& group) const {
    return std::any_of(group.begin(), group.end(),
                       [&](const Candidate& a) { return dominates(a, candidate); });
  }

  bool dominates(const Candidate& a, const Candidate& b) const {
    const bool inside = a.first_device >= b.first_device && a.end_device <= b.end_device;
    return a.static_bytes <= b.static_bytes && a.peak_bytes <= b.peak_bytes &&
           (a.devices_id == b.devices_id || (monotone_.devices && inside)) &&
           (a.move_class == b.move_class || (monotone_.moves && is_free_[a.move_class])) &&
           (a.time_us == b.time_us || (monotone_.time && a.time_us < b.time_us));
  }

  Monotone monotone_;
  const std::vector<bool>& is_free_;
};

Status no_option_fits(const Problem& problem, const Call& call) {
  int64_t least = INT64_MAX;
  for (const Option& option : call.options) least = std::min(least, option.peak_bytes);
  return {Code::kInfeasible,
          cat("call '", call.name, "' fits on no device: its smallest option needs ",
              format_bytes(static_cast<double>(least)), " of ",
              format_bytes(static_cast<double>(problem.device_memory_bytes)))};
}

Status add_candidates(const CompiledMoves& moves, const IterationGraph& graph, Pruning pruning,
                      Model& model) {
  const Problem& problem = *model.problem;
  std::map<std::pair<int32_t, int32_t>, int32_t> intervals;
  const std::vector<Monotone> monotone = find_monotone(graph, model.num_calls);
  for (int c = 0; c < model.num_calls; ++c) {
    std::vector<Candidate> fitting;
    const Call& call = problem.calls[c];
    for (size_t i = 0; i < call.options.size(); ++i) {
      const Option& option = call.options[i];
      const bool fits = option.peak_bytes <= problem.device_memory_bytes;
      if (!fits && pruning == Pruning::kLossless) continue;
      const auto next = static_cast<int32_t>(intervals.size());
      const auto interval =
          intervals.emplace(std::make_pair(option.first_device, option.end_device()), next);
      fitting.push_back({.first_device = option.first_device,
                         .end_device = option.end_device(),
                         .devices_id = interval.first->second,
                         .move_class = moves.class_of_option[c][i],
                         .option = static_cast<int32_t>(i),
                         .time_us = option.time_us,
                         .static_bytes = option.static_bytes,
                         .peak_bytes = option.peak_bytes});
    }
    if (fitting.empty()) return no_option_fits(problem, call);
    std::sort(fitting.begin(), fitting.end(), [](const Candidate& a, const Candidate& b) {
      return pruning_key(a) < pruning_key(b);
    });
    if (pruning == Pruning::kLossless)
      fitting = Pruner(monotone[c], moves.is_free[c]).prune(fitting);
    model.candidates.push_back(std::move(fitting));
  }
  model.num_intervals = static_cast<int>(intervals.size());
  return ok_status();
}

// ---- Evaluation
// --------------------------------------------------------------------------------------------------

int64_t duration_us(const Model& model, const SegmentNode& node,
                    const std::vector<Candidate>& chosen) {
  if (node.pair < 0) return chosen[node.call].time_us;
  const MoveMatrix& moves = model.moves[node.pair];
  const size_t at = moves.at(chosen[moves.other].move_class, chosen[moves.train].move_class);
  return node.back ? moves.back_us[at] : moves.there_us[at];
}

void find_overlaps(const CompiledSegment& segment, const std::vector<Candidate>& chosen,
                   SegmentScratch& scratch) {
  const size_t count = segment.owners.size();
  scratch.overlaps.assign(count, 0);
  scratch.busy_until_us.assign(count, 0);
  for (size_t i = 0; i < count; ++i) {
    scratch.overlaps[i] |= uint32_t{1} << i;
    for (size_t j = 0; j < i; ++j)
      if (overlap(chosen[segment.owners[i]], chosen[segment.owners[j]])) {
        scratch.overlaps[i] |= uint32_t{1} << j;
        scratch.overlaps[j] |= uint32_t{1} << i;
      }
  }
}

// Runs a node on its devices as soon as they are free; returns its end.
int64_t run_node(const SegmentNode& node, int64_t ready_us, int64_t duration_us,
                 SegmentScratch& scratch) {
  int64_t start_us = ready_us;
  for (uint32_t rest = scratch.overlaps[node.owner]; rest != 0; rest &= rest - 1)
    start_us = std::max(start_us, scratch.busy_until_us[std::countr_zero(rest)]);
  return scratch.busy_until_us[node.owner] = start_us + duration_us;
}

int64_t flat_time_us(const Model& model, const CompiledSegment& segment,
                     const std::vector<Candidate>& chosen, SegmentScratch& scratch) {
  int64_t latest_us = 0;
  for (const int32_t n : segment.flat_order) {
    const SegmentNode& node = segment.nodes[n];
    latest_us = std::max(latest_us, run_node(node, 0, duration_us(model, node, chosen), scratch));
  }
  return latest_us;
}

}  // namespace

Result<Model> compile_model(const Problem& problem, Pruning pruning) {
  Model model;
  model.problem = &problem;
  model.num_calls = static_cast<int>(problem.calls.size());
  model.demand_shares = demand_shares(problem.num_devices);
  const IterationGraph graph = build_graph(problem);
  BRAID_ASSIGN(CompiledMoves moves, compile_moves(problem, graph.pairs));
  BRAID_TRY(add_candidates(moves, graph, pruning, model));
  model.moves = std::move(moves.matrices);
  model.horizon_us = longest_iteration_us(problem) + 1;
  model.segments_of.resize(problem.calls.size());
  model.home.resize(problem.calls.size());
  for (const Segment& segment : graph.segments) {
    for (int c = 0; c < model.num_calls; ++c)
      if ((segment.calls >> c & 1) != 0)
        model.segments_of[c].push_back(static_cast<int>(model.segments.size()));
    for (const int n : segment.nodes)
      if (graph.nodes[n].pair < 0) model.home[n] = static_cast<int>(model.segments.size());
    model.segments.push_back(compile_segment(graph, segment));
  }
  return model;
}

int64_t segment_time_us(const Model& model, const CompiledSegment& segment,
                        const std::vector<Candidate>& chosen, SegmentScratch& scratch) {
  find_overlaps(segment, chosen, scratch);
  if (!segment.flat_order.empty()) return flat_time_us(model, segment, chosen, scratch);
  const size_t count = segment.nodes.size();
  scratch.ready_us.assign(count, 0);
  scratch.missing.resize(count);
  for (size_t n = 0; n < count; ++n) scratch.missing[n] = segment.nodes[n].num_predecessors;
  scratch.heap.clear();
  for (const int32_t entry : segment.entries) scratch.heap.push({.ready = 0, .node = entry});
  int64_t latest_us = 0;
  while (!scratch.heap.empty()) {
    const int32_t n = scratch.heap.pop().node;
    const SegmentNode& node = segment.nodes[n];
    const int64_t end_us =
        run_node(node, scratch.ready_us[n], duration_us(model, node, chosen), scratch);
    latest_us = std::max(latest_us, end_us);
    for (const int32_t next : node.successors) {
      scratch.ready_us[next] = std::max(scratch.ready_us[next], end_us);
      if (--scratch.missing[next] == 0)
        scratch.heap.push({.ready = scratch.ready_us[next], .node = next});
    }
  }
  return latest_us;
}

int64_t peak_bytes(const std::vector<Candidate>& chosen) {
  // The calls on a device are all on the first device of the one of them that starts last, so that
  // only first devices need to be looked at.
  int64_t peak = 0;
  for (const Candidate& at : chosen) {
    int64_t resident = 0;
    int64_t transient = 0;
    for (const Candidate& call : chosen) {
      if (at.first_device < call.first_device || at.first_device >= call.end_device) continue;
      resident += call.static_bytes;
      transient = std::max(transient, call.peak_bytes - call.static_bytes);
    }
    peak = std::max(peak, resident + transient);
  }
  return peak;
}

Plan plan_of(const std::vector<Candidate>& chosen) {
  Plan plan;
  for (const Candidate& candidate : chosen) plan.push_back(candidate.option);
  return plan;
}

}  // namespace braid::tabular
