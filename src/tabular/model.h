// A tabulated problem compiled for search: per call the candidates (options that survive pruning),
// moves as dense matrices over move classes, and the segments of the graph in the form that their
// fast evaluator wants. Immutable after compile_model, so threads share one; scratch memory is the
// caller's.
//
// Pruning loses no optimum. Dropped are options that need more memory than a device has, and
// options that another option of the same call dominates: it needs no more static and peak memory,
// and
//   * equal devices, or a subset of them where every segment with a node of the call is flat;
//   * an equal move class, or moves that all take no time where every segment with a move of the
//   call is flat;
//   * equal time, or less where the call's own segment is flat.
// In a flat segment nodes are popped in an order that no duration changes, so every end is a sum of
// maxima of durations of earlier nodes that share devices: it grows with durations and with
// overlap. Elsewhere list scheduling has anomalies (a shorter call can lengthen the schedule),
// hence the equalities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tabular/demand.h"
#include "tabular/graph.h"
#include "tabular/heap.h"
#include "tabular/problem.h"

namespace braid::tabular {

struct Candidate {
  int32_t first_device = 0;
  int32_t end_device = 0;
  int32_t devices_id = 0;  // number of the device interval, shared by all calls
  int32_t move_class = 0;  // layouts with equal moves to and from every partner form one class
  int32_t option = 0;      // index into Call::options
  int64_t time_us = 0;
  int64_t static_bytes = 0;
  int64_t peak_bytes = 0;
  int64_t num_devices() const { return end_device - first_device; }
};

inline bool overlap(const Candidate& a, const Candidate& b) {
  return a.first_device < b.end_device && b.first_device < a.end_device;
}

// Durations of the moves of one pair, by move class.
struct MoveMatrix {
  int train = 0;
  int other = 0;
  int num_train_classes = 0;
  std::vector<int64_t> there_us;  // other -> train, [other class][train class]
  std::vector<int64_t> back_us;   // train -> other, [other class][train class]
  // Smallest entries, for bounds while one side is open: by class of the train call, of the other,
  // and over all.
  std::vector<int64_t> least_there_by_train, least_back_by_train;
  std::vector<int64_t> least_there_by_other, least_back_by_other;
  int64_t least_there_us = 0;
  int64_t least_back_us = 0;

  size_t at(int other_class, int train_class) const {
    return size_t(other_class) * num_train_classes + train_class;
  }
};

// A node of a segment; successors are positions in CompiledSegment::nodes.
struct SegmentNode {
  int32_t call = 0;   // owner of the devices
  int32_t owner = 0;  // position of call in CompiledSegment::owners
  int32_t pair = -1;
  bool back = false;
  uint8_t num_predecessors = 0;
  std::vector<int32_t> successors;
};

struct CompiledSegment {
  std::vector<SegmentNode> nodes;  // topological order
  std::vector<int32_t> entries;
  std::vector<int32_t> flat_order;  // popping order of a flat segment, else empty
  std::vector<int32_t> owners;      // calls that own nodes
  uint32_t calls = 0;               // mask of the calls that the makespan depends on
};

struct Model {
  const Problem* problem = nullptr;
  int num_calls = 0;
  int num_intervals = 0;
  std::vector<std::vector<Candidate>> candidates;  // per call, by ascending time
  std::vector<Demand> demand_shares;               // by number of devices
  std::vector<MoveMatrix> moves;
  std::vector<CompiledSegment> segments;
  std::vector<std::vector<int>> segments_of;  // per call: the segments that depend on it
  std::vector<int> home;                      // per call: the segment of its own node
  int64_t horizon_us = 0;                     // more than one iteration of any plan takes
};

// kNone keeps every option, for searches that are to be compared with published ones.
enum class Pruning { kLossless, kNone };

// kInfeasible when a call has no option that fits into a device by itself. `problem` must outlive
// the model. Distinct layouts per call of a pair are limited to 4096.
Result<Model> compile_model(const Problem& problem, Pruning pruning = Pruning::kLossless);

// Work space of segment_time_us; one per thread.
struct SegmentScratch {
  std::vector<int64_t> ready_us;
  std::vector<uint8_t> missing;
  std::vector<int64_t> busy_until_us;  // per owner
  std::vector<uint32_t> overlaps;      // per owner: mask of owners that share a device
  ReadyHeap heap;
};

// Makespan of one segment; chosen holds one candidate per call (those outside segment.calls are not
// read).
int64_t segment_time_us(const Model& model, const CompiledSegment& segment,
                        const std::vector<Candidate>& chosen, SegmentScratch& scratch);

// Bytes needed on the fullest device.
int64_t peak_bytes(const std::vector<Candidate>& chosen);

// Option indices of chosen candidates.
Plan plan_of(const std::vector<Candidate>& chosen);

}  // namespace braid::tabular
