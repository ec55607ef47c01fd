// Lower bounds on the cost of completing a partial plan: for each segment the largest of
//   * the longest path through the segment's graph,
//   * the demands of its nodes over the whole cluster (demand.h), and the same of the nodes
//     that cannot start before some time or must be followed by some time: that time, their demand,
//     and the least head or tail among them,
//   * the sum over nodes of which no two can run at once - their calls share a device, or need more
//     devices together than there are - with the least head and tail among them,
// where an open call counts with the least over its remaining candidates. Each holds for every
// schedule that respects dependencies and exclusive devices, so also for list scheduling, whatever
// its anomalies. Not thread-safe: a Bounder has scratch space.
#pragma once

#include <cstdint>
#include <vector>

#include "tabular/demand.h"
#include "tabular/model.h"

namespace braid::tabular {

inline constexpr int32_t kManyClasses = -1;
inline constexpr int64_t kAreaBytes = 1 << 14;  // so that sums over devices and calls fit

// What is known about a call: its candidate, or what holds for all candidates that remain.
struct CallBounds {
  bool assigned = false;
  int32_t num_devices = 1;   // least
  int32_t first_device = 0;  // the devices that all candidates share: none if first >= end
  int32_t end_device = 0;
  int32_t move_class = kManyClasses;  // where all have the same
  int64_t time_us = 0;                // least, as all below
  int64_t static_bytes = 0;
  int64_t transient_bytes = 0;  // peak less static
  int64_t peak_bytes = 0;
  int64_t static_area = 0;  // of all its devices, in units of kAreaBytes, rounded down
  int64_t transient_area = 0;
  Demand demand{};
};

// What holds for one candidate, and for one of two sets of candidates or the other.
CallBounds bounds_of(const Model& model, const Candidate& candidate);
void take_least(CallBounds& least, const CallBounds& one);

struct PartialPlan {
  uint32_t assigned = 0;          // mask
  std::vector<Candidate> chosen;  // of assigned calls
  std::vector<CallBounds> calls;
};

class Bounder {
 public:
  explicit Bounder(const Model& model);

  // Microseconds; exact when all calls of the segment are assigned.
  int64_t segment_us(int segment, const PartialPlan& plan);

  // Of the last segment_us that was not exact: the total demand, and for a call's own node the
  // longest path through it without its own time.
  const Demand& demand() const { return demand_; }
  int64_t path_around_us(int call) const { return path_around_us_[call]; }

  int64_t whole_cluster() const { return whole_; }

 private:
  int64_t duration_us(const SegmentNode& node, const PartialPlan& plan) const;
  int64_t path_us(const CompiledSegment& segment, const PartialPlan& plan);
  int64_t demand_us(const CompiledSegment& segment, const PartialPlan& plan);
  int64_t window_us(const std::vector<int64_t>& before_us,
                    const std::vector<int64_t>& after_us) const;
  int64_t conflict_us(const CompiledSegment& segment, const PartialPlan& plan);
  void find_conflicts(const CompiledSegment& segment, const PartialPlan& plan);
  int64_t clique_us(const CompiledSegment& segment, uint32_t owners) const;

  const Model& model_;
  int64_t whole_;
  SegmentScratch scratch_;
  Demand demand_{};
  std::vector<int64_t> path_around_us_;  // by call
  // By node of the segment.
  std::vector<int64_t> duration_us_, head_us_, tail_us_;
  std::vector<Demand> demand_of_;
  // By owner of the segment: which others cannot run at the same time, and the time of its nodes.
  std::vector<uint32_t> conflicts_;
  std::vector<int64_t> work_us_;
  std::vector<int32_t> by_work_;
};

}  // namespace braid::tabular
