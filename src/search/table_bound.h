// Lower bounds on the cost of completing a partial plan: for each segment the largest of
//   * the longest path through the segment's graph,
//   * the load of a device: all nodes known to run on it, plus the least head and tail among them,
//   * device time over the number of devices (area), and the same counting a node on more than half
//   of the devices as on
//     all, one on exactly half as on half, and smaller ones as on none (a dual feasible function,
//     Fekete and Schepers 2001: whatever runs at once still adds up to at most the whole cluster),
//   * the same of the nodes that cannot start before some time or must be followed by some time:
//   that
//     time, their device time, and the least head or tail among them,
// where an open call counts with the least time and area among its remaining candidates. Each holds
// for every schedule that respects dependencies and exclusive devices, so also for list scheduling,
// whatever its anomalies. Not thread-safe: a Bounder has scratch space.
#pragma once

#include <cstdint>
#include <vector>

#include "search/table_model.h"

namespace braid::table {

// What is known about a call: its candidate, or minima over the candidates that remain.
struct CallBounds {
  bool assigned = false;
  int32_t num_devices = 1;  // least
  int64_t time_us = 0;      // least
  int64_t area = 0;         // least device-microseconds
  int64_t wide_area =
      0;  // least microseconds * (2: more than half of the devices, 1: exactly half, 0: fewer)
};

// Neutral element of CallBounds minima.
CallBounds no_candidates();
CallBounds bounds_of(const Candidate& candidate, int32_t cluster_devices);
void take_least(CallBounds& least, const CallBounds& one);

struct PartialPlan {
  uint32_t assigned = 0;          // mask
  std::vector<Candidate> chosen;  // of assigned calls
  std::vector<CallBounds> calls;
};

// What a segment demands apart from the choice of one open call whose own node is in it.
struct SegmentDemand {
  int64_t area = 0;
  int64_t wide_area = 0;
};

class Bounder {
 public:
  explicit Bounder(const Model& model);

  // Microseconds; exact when all calls of the segment are assigned.
  int64_t segment_us(int segment, const PartialPlan& plan);

  // Of the last segment_us that was not exact: the total demand, and for a call's own node the
  // longest path through it without its own time.
  const SegmentDemand& demand() const { return demand_; }
  int64_t path_around_us(int call) const { return path_around_us_[call]; }

 private:
  int64_t duration_us(const SegmentNode& node, const PartialPlan& plan) const;
  int64_t path_us(const CompiledSegment& segment, const PartialPlan& plan);
  int64_t area_us(const CompiledSegment& segment, const PartialPlan& plan);
  int64_t window_us(const std::vector<int64_t>& before_us,
                    const std::vector<int64_t>& after_us) const;
  int64_t load_us(const CompiledSegment& segment, const PartialPlan& plan, int32_t device) const;

  const Model& model_;
  int64_t num_devices_;
  SegmentScratch scratch_;
  SegmentDemand demand_;
  std::vector<int64_t> path_around_us_;  // by call
  // By node of the segment.
  std::vector<int64_t> duration_us_, head_us_, tail_us_;
  std::vector<SegmentDemand> demand_of_;
};

}  // namespace braid::table
