// A pipeline problem compiled for search: ops are numbers, and what each waits for is in a table.
//
// Micro-batches of a pipeline are alike, so a schedule in which each (stage, pass) takes them in
// order is as good as any: the k-th start can be given the k-th micro-batch, whose input was the
// k-th to be ready at the latest then. An order of a node is therefore a list of classes, and the
// k-th op of a class is that of micro-batch k.
//
// Immutable after compile; shared between threads.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedule/pipelines.h"

namespace braid::inline fuse {

// All ops of one pass of one stage.
struct OpClass {
  int32_t pipeline = 0;
  int32_t stage = 0;
  PassKind kind = PassKind::kForward;
  int32_t node = 0;
  double duration = 0;
  int32_t count = 0;     // micro-batches
  int32_t first_op = 0;  // op of micro-batch k: first_op + k
  // Classes whose op of the same micro-batch it waits for, and that wait for it; -1: none. At most
  // one before and two after, or the other way round in a reversed graph.
  std::array<int32_t, 2> before = {-1, -1}, after = {-1, -1};
  std::array<double, 2> lag_before = {0, 0}, lag_after = {0, 0};
  double take = 0;     // memory taken at its start
  double release = 0;  // memory released at its end
  int32_t holder = 0;  // number of its (pipeline, stage), counted over all pipelines
  int32_t group = 0;   // number of its (pipeline, pass, how many stages of the pipeline before
                       // it lie on the node)
  double head = 0, tail = 0;  // time from the start of its first micro-batch to its own start at
                              // least, and from its end to the end of the micro-batch
};

struct OpGraph {
  int32_t nodes = 0;
  int32_t num_ops = 0;
  int32_t num_holders = 0;
  int32_t num_groups = 0;
  bool mirrored = false;  // time runs backwards
  std::vector<OpClass> classes;
  std::vector<int32_t> class_of;                  // [op]
  std::vector<std::vector<int32_t>> of_node;      // classes of each node
  std::vector<std::vector<int32_t>> of_pipeline;  // classes of each pipeline, none before its input
  double memory_limit = 0;                        // infinite when there is none
  double rounding = 0;                            // times that differ by less are alike
  double memory_rounding = 0;
  double tick = 0;  // all times are whole multiples of it; 0: not known
};

// An order of a node: class numbers, as often as the class has micro-batches.
using ClassOrder = std::vector<std::vector<int32_t>>;

// REQUIRES: check_problem is ok.
OpGraph compile_ops(const PipelineProblem& problem);

// The same problem run backwards in time: forwards become backwards. A schedule of either, each
// node's list reversed, is one of the other with the same makespan and memory (docs/fuse.md).
// Classes keep their numbers.
OpGraph reversed(const OpGraph& graph);

// The multiple of the tick that is meant by a sum of times; the sum itself where no tick is known.
double on_tick(const OpGraph& graph, double time);

// Ops of each node in order, micro-batches counted up within each class.
FusedOrder to_ops(const OpGraph& graph, const ClassOrder& order);

// Start of every op when each runs as soon as its node is free and its input is there; the makespan
// is negative when ops wait for each other in a circle.
struct OpStarts {
  std::vector<double> start;  // [op]
  double makespan = 0;
};
OpStarts earliest_starts(const OpGraph& graph, const ClassOrder& order);

// The order as a timeline of those starts. REQUIRES: no circle.
PipelineTimeline timeline_of(const OpGraph& graph, const ClassOrder& order);

// Peak memory of each node by its order alone: a release counts before the takes that follow it in
// the list.
std::vector<double> peak_of_order(const OpGraph& graph, const ClassOrder& order);

}  // namespace braid::inline fuse
