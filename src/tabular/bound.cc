#include "tabular/bound.h"

#include <algorithm>
#include <numeric>

namespace braid::tabular {
namespace {

// Least duration of a move, given what is known of the two layouts.
int64_t move_us(const MoveMatrix& moves, bool back, const PartialPlan& plan) {
  const int32_t train = plan.calls[moves.train].move_class;
  const int32_t other = plan.calls[moves.other].move_class;
  if (train != kManyClasses && other != kManyClasses)
    return (back ? moves.back_us : moves.there_us)[moves.at(other, train)];
  if (train != kManyClasses)
    return (back ? moves.least_back_by_train : moves.least_there_by_train)[train];
  if (other != kManyClasses)
    return (back ? moves.least_back_by_other : moves.least_there_by_other)[other];
  return back ? moves.least_back_us : moves.least_there_us;
}

bool conflict(const CallBounds& a, const CallBounds& b, int32_t cluster_devices) {
  if (a.num_devices + b.num_devices > cluster_devices) return true;
  return std::max(a.first_device, b.first_device) < std::min(a.end_device, b.end_device);
}

}  // namespace

CallBounds bounds_of(const Model& model, const Candidate& candidate) {
  const auto count = static_cast<int32_t>(candidate.num_devices());
  CallBounds bounds;
  bounds.num_devices = count;
  bounds.first_device = candidate.first_device;
  bounds.end_device = candidate.end_device;
  bounds.move_class = candidate.move_class;
  bounds.time_us = candidate.time_us;
  bounds.static_bytes = candidate.static_bytes;
  bounds.transient_bytes = candidate.peak_bytes - candidate.static_bytes;
  bounds.peak_bytes = candidate.peak_bytes;
  bounds.static_area = bounds.static_bytes / kAreaBytes * count;
  bounds.transient_area = bounds.transient_bytes / kAreaBytes * count;
  bounds.demand = demand_of(model.demand_shares[count], candidate.time_us);
  return bounds;
}

void take_least(CallBounds& least, const CallBounds& one) {
  least.num_devices = std::min(least.num_devices, one.num_devices);
  least.first_device = std::max(least.first_device, one.first_device);
  least.end_device = std::min(least.end_device, one.end_device);
  if (least.move_class != one.move_class) least.move_class = kManyClasses;
  least.time_us = std::min(least.time_us, one.time_us);
  least.static_bytes = std::min(least.static_bytes, one.static_bytes);
  least.transient_bytes = std::min(least.transient_bytes, one.transient_bytes);
  least.peak_bytes = std::min(least.peak_bytes, one.peak_bytes);
  least.static_area = std::min(least.static_area, one.static_area);
  least.transient_area = std::min(least.transient_area, one.transient_area);
  take_least(least.demand, one.demand);
}

Bounder::Bounder(const Model& model)
    : model_(model),
      whole_(kDeviceShare * model.problem->num_devices),
      path_around_us_(model.num_calls) {}

int64_t Bounder::segment_us(int segment, const PartialPlan& plan) {
  const CompiledSegment& nodes = model_.segments[segment];
  if ((nodes.calls & ~plan.assigned) == 0)
    return segment_time_us(model_, nodes, plan.chosen, scratch_);
  int64_t bound_us = path_us(nodes, plan);  // first: it sets the durations that the others read
  bound_us = std::max(bound_us, demand_us(nodes, plan));
  return std::max(bound_us, conflict_us(nodes, plan));
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

int64_t Bounder::demand_us(const CompiledSegment& segment, const PartialPlan& plan) {
  demand_ = {};
  demand_of_.resize(segment.nodes.size());
  for (size_t n = 0; n < segment.nodes.size(); ++n) {
    const SegmentNode& node = segment.nodes[n];
    const CallBounds& call = plan.calls[node.call];
    demand_of_[n] = node.pair < 0
                        ? call.demand
                        : demand_of(model_.demand_shares[call.num_devices], duration_us_[n]);
    add(demand_, demand_of_[n]);
  }
  const int64_t bound_us = least_time_us(demand_, whole_);
  return std::max({bound_us, window_us(head_us_, tail_us_), window_us(tail_us_, head_us_)});
}

// For each node: those with at least its time before them run in a window of at most the makespan
// less that time and the least time after one of them.
int64_t Bounder::window_us(const std::vector<int64_t>& before_us,
                           const std::vector<int64_t>& after_us) const {
  const size_t count = demand_of_.size();
  int64_t bound_us = 0;
  for (size_t n = 0; n < count; ++n) {
    if (before_us[n] == 0 ||
        std::find(before_us.begin(), before_us.begin() + n, before_us[n]) != before_us.begin() + n)
      continue;
    Demand demand{};
    int64_t least_after_us = INT64_MAX;
    for (size_t m = 0; m < count; ++m) {
      if (before_us[m] < before_us[n]) continue;
      add(demand, demand_of_[m]);
      least_after_us = std::min(least_after_us, after_us[m]);
    }
    bound_us = std::max(bound_us, before_us[n] + least_time_us(demand, whole_) + least_after_us);
  }
  return bound_us;
}

void Bounder::find_conflicts(const CompiledSegment& segment, const PartialPlan& plan) {
  const size_t count = segment.owners.size();
  conflicts_.assign(count, 0);
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < i; ++j) {
      if (!conflict(plan.calls[segment.owners[i]], plan.calls[segment.owners[j]],
                    model_.problem->num_devices))
        continue;
      conflicts_[i] |= uint32_t{1} << j;
      conflicts_[j] |= uint32_t{1} << i;
    }
  work_us_.assign(count, 0);
  for (size_t n = 0; n < segment.nodes.size(); ++n)
    work_us_[segment.nodes[n].owner] += duration_us_[n];
  by_work_.resize(count);
  std::iota(by_work_.begin(), by_work_.end(), 0);
  std::sort(by_work_.begin(), by_work_.end(), [this](int32_t a, int32_t b) {
    return work_us_[a] != work_us_[b] ? work_us_[a] > work_us_[b] : a < b;
  });
}

// From every owner a set of owners in conflict with each other, taking the longest first.
int64_t Bounder::conflict_us(const CompiledSegment& segment, const PartialPlan& plan) {
  find_conflicts(segment, plan);
  int64_t bound_us = 0;
  uint32_t before = 0;
  for (const int32_t seed : by_work_) {
    uint32_t clique = uint32_t{1} << seed;
    uint32_t common = conflicts_[seed];
    for (const int32_t owner : by_work_) {
      if ((common >> owner & 1) == 0) continue;
      clique |= uint32_t{1} << owner;
      common &= conflicts_[owner];
    }
    if (clique != before) bound_us = std::max(bound_us, clique_us(segment, clique));
    before = clique;
  }
  return bound_us;
}

// The nodes of owners in conflict run one after the other, and so do those of them that start late.
int64_t Bounder::clique_us(const CompiledSegment& segment, uint32_t owners) const {
  const size_t count = segment.nodes.size();
  const auto taken = [&](size_t n) { return (owners >> segment.nodes[n].owner & 1) != 0; };
  int64_t bound_us = 0;
  int64_t seen_us = -1;
  for (size_t first = 0; first < count; ++first) {
    if (!taken(first) || head_us_[first] == seen_us) continue;
    seen_us = head_us_[first];
    int64_t sum_us = 0;
    int64_t tail_us = INT64_MAX;
    for (size_t n = 0; n < count; ++n) {
      if (!taken(n) || head_us_[n] < seen_us) continue;
      sum_us += duration_us_[n];
      tail_us = std::min(tail_us, tail_us_[n]);
    }
    bound_us = std::max(bound_us, seen_us + sum_us + tail_us);
  }
  return bound_us;
}

}  // namespace braid::tabular
