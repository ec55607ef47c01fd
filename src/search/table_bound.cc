#include "search/table_bound.h"

#include <algorithm>

namespace braid::table {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool covers(const Candidate& candidate, int32_t device) {
  return candidate.first_device <= device && device < candidate.end_device;
}

// Least duration of a move, given which of the two calls are assigned.
int64_t move_us(const MoveMatrix& moves, bool back, const PartialPlan& plan) {
  const bool has_train = plan.calls[moves.train].assigned;
  const bool has_other = plan.calls[moves.other].assigned;
  const int32_t train = plan.chosen[moves.train].move_class;
  const int32_t other = plan.chosen[moves.other].move_class;
  if (has_train && has_other)
    return (back ? moves.back_us : moves.there_us)[moves.at(other, train)];
  if (has_train) return (back ? moves.least_back_by_train : moves.least_there_by_train)[train];
  if (has_other) return (back ? moves.least_back_by_other : moves.least_there_by_other)[other];
  return back ? moves.least_back_us : moves.least_there_us;
}

int64_t wide_factor(int64_t num_devices, int64_t cluster_devices) {
  return 2 * num_devices > cluster_devices ? 2 : 2 * num_devices == cluster_devices ? 1 : 0;
}

}  // namespace

CallBounds no_candidates() {
  return {.assigned = false,
          .num_devices = INT32_MAX,
          .time_us = INT64_MAX,
          .area = INT64_MAX,
          .wide_area = INT64_MAX};
}

CallBounds bounds_of(const Candidate& candidate, int32_t cluster_devices) {
  const int64_t count = candidate.num_devices();
  return {.assigned = false,
          .num_devices = static_cast<int32_t>(count),
          .time_us = candidate.time_us,
          .area = candidate.time_us * count,
          .wide_area = candidate.time_us * wide_factor(count, cluster_devices)};
}

void take_least(CallBounds& least, const CallBounds& one) {
  least.num_devices = std::min(least.num_devices, one.num_devices);
  least.time_us = std::min(least.time_us, one.time_us);
  least.area = std::min(least.area, one.area);
  least.wide_area = std::min(least.wide_area, one.wide_area);
}

Bounder::Bounder(const Model& model)
    : model_(model), num_devices_(model.problem->num_devices), path_around_us_(model.num_calls) {}

int64_t Bounder::segment_us(int segment, const PartialPlan& plan) {
  const CompiledSegment& nodes = model_.segments[segment];
  if ((nodes.calls & ~plan.assigned) == 0)
    return segment_time_us(model_, nodes, plan.chosen, scratch_);
  int64_t bound_us = path_us(nodes, plan);  // first: it sets the durations that the others read
  bound_us = std::max(bound_us, area_us(nodes, plan));
  for (const int32_t call : nodes.owners)
    if (plan.calls[call].assigned)
      bound_us = std::max(bound_us, load_us(nodes, plan, plan.chosen[call].first_device));
  return bound_us;
}

int64_t Bounder::duration_us(const SegmentNode& node, const PartialPlan& plan) const {
  return node.pair < 0 ? plan.calls[node.call].time_us
                       : move_us(model_.moves[node.pair], node.back, plan);
}

int64_t Bounder::path_us(const CompiledSegment& segment, const PartialPlan& plan) {
  const size_t count = segment.nodes.size();
  duration_us_.resize(count);
  head_us_.assign(count, 0);
  tail_us_.assign(count, 0);
  for (size_t n = 0; n < count; ++n) {
    const SegmentNode& node = segment.nodes[n];
    duration_us_[n] = duration_us(node, plan);
    for (const int32_t next : node.successors)
      head_us_[next] = std::max(head_us_[next], head_us_[n] + duration_us_[n]);
  }
  int64_t longest_us = 0;
  for (size_t n = count; n-- > 0;) {
    const SegmentNode& node = segment.nodes[n];
    for (const int32_t next : node.successors)
      tail_us_[n] = std::max(tail_us_[n], duration_us_[next] + tail_us_[next]);
    const int64_t around_us = head_us_[n] + tail_us_[n];
    if (node.pair < 0) path_around_us_[node.call] = around_us;
    longest_us = std::max(longest_us, around_us + duration_us_[n]);
  }
  return longest_us;
}

int64_t Bounder::area_us(const CompiledSegment& segment, const PartialPlan& plan) {
  demand_ = {};
  demand_of_.clear();
  for (size_t n = 0; n < segment.nodes.size(); ++n) {
    const SegmentNode& node = segment.nodes[n];
    const CallBounds& call = plan.calls[node.call];
    const int64_t us = duration_us_[n];
    demand_of_.push_back(node.pair < 0
                             ? SegmentDemand{call.area, call.wide_area}
                             : SegmentDemand{us * call.num_devices,
                                             us * wide_factor(call.num_devices, num_devices_)});
    demand_.area += demand_of_.back().area;
    demand_.wide_area += demand_of_.back().wide_area;
  }
  const int64_t bound_us =
      std::max(ceil_div(demand_.area, num_devices_), ceil_div(demand_.wide_area, 2));
  return std::max({bound_us, window_us(head_us_, tail_us_), window_us(tail_us_, head_us_)});
}

// For each node: those with at least its time before them run in a window of at most the makespan
// less that time and the least time after one of them.
int64_t Bounder::window_us(const std::vector<int64_t>& before_us,
                           const std::vector<int64_t>& after_us) const {
  const size_t count = demand_of_.size();
  int64_t bound_us = 0;
  for (size_t n = 0; n < count; ++n) {
    if (before_us[n] == 0) continue;
    SegmentDemand demand;
    int64_t least_after_us = INT64_MAX;
    for (size_t m = 0; m < count; ++m) {
      if (before_us[m] < before_us[n]) continue;
      demand.area += demand_of_[m].area;
      demand.wide_area += demand_of_[m].wide_area;
      least_after_us = std::min(least_after_us, after_us[m]);
    }
    const int64_t inside_us =
        std::max(ceil_div(demand.area, num_devices_), ceil_div(demand.wide_area, 2));
    bound_us = std::max(bound_us, before_us[n] + inside_us + least_after_us);
  }
  return bound_us;
}

int64_t Bounder::load_us(const CompiledSegment& segment, const PartialPlan& plan,
                         int32_t device) const {
  int64_t sum_us = 0;
  int64_t head_us = INT64_MAX;
  int64_t tail_us = INT64_MAX;
  for (size_t n = 0; n < segment.nodes.size(); ++n) {
    const int32_t call = segment.nodes[n].call;
    if (!plan.calls[call].assigned || !covers(plan.chosen[call], device)) continue;
    sum_us += duration_us_[n];
    head_us = std::min(head_us, head_us_[n]);
    tail_us = std::min(tail_us, tail_us_[n]);
  }
  return head_us + sum_us + tail_us;
}

}  // namespace braid::table
