// The problem of fusing pipelines together: any number of pipelines whose stages lie on nodes, and
// a schedule for them: for each node the order of its ops. Values; all functions are pure.
//
// One micro-batch of a pipeline runs forward through stages 0, 1, ... and backward from the last to
// the first. A node runs one op at a time. Several stages of a pipeline may lie on one node (V and
// wave placements, interleaved chunks); a copy of a pipeline is another entry. Micro-batches of a
// pipeline are alike and may run in any order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace braid::inline schedule {

// The largest problem that is accepted: ten times the largest that a search of seconds treats well.
inline constexpr int64_t kMaxPipelineOps = 262'144;
inline constexpr int64_t kMaxPipelineStages = 2'048;  // of all pipelines
inline constexpr int32_t kMaxPipelineNodes = 4'096;

// kBackward is the whole backward, or with split backward the gradient of the input alone, and
// kWeight then the gradient of the weights, which waits for it and which nothing waits for (Qi et
// al., arXiv 2401.10241).
enum class PassKind : uint8_t { kForward, kBackward, kWeight };

struct Pipeline {
  std::string name;
  std::vector<int32_t> stages;  // the node of each stage
  int32_t micro_batches = 1;
  // Per stage: time of an op, at least 0; `weight` is empty unless the backward is split.
  std::vector<double> forward, backward, weight;
  // Per stage: activations of one micro-batch, held from the start of its forward to the end of its
  // backward (of its weight gradient when split).
  std::vector<double> memory;
  int32_t num_stages() const { return static_cast<int32_t>(stages.size()); }
  bool split_backward() const { return !weight.empty(); }
  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

struct PipelineProblem {
  int32_t nodes = 1;
  std::vector<Pipeline> pipelines;
  double communication = 0;            // delay between stages on different nodes
  std::optional<double> memory_limit;  // of each node
  friend bool operator==(const PipelineProblem&, const PipelineProblem&) = default;
};

struct PipelineOp {
  int32_t pipeline = 0;
  int32_t micro_batch = 0;
  int32_t stage = 0;
  PassKind kind = PassKind::kForward;
  friend bool operator==(const PipelineOp&, const PipelineOp&) = default;
};

// The ops of each node, in order.
using FusedOrder = std::vector<std::vector<PipelineOp>>;

struct TimedPipelineOp {
  PipelineOp op;
  double start = 0;
  double end = 0;
  friend bool operator==(const TimedPipelineOp&, const TimedPipelineOp&) = default;
};

// A schedule with its times: [node][position], by ascending start.
using PipelineTimeline = std::vector<std::vector<TimedPipelineOp>>;

// What is wrong with a problem, with pipeline, stage and remedy: sizes that do not match, nodes
// that do not exist, numbers that are negative or not finite, too many ops, a memory limit that one
// micro-batch exceeds.
Status check_problem(const PipelineProblem& problem);

// Ops of all pipelines. REQUIRES: check_problem is ok.
int64_t num_ops(const PipelineProblem& problem);

// The time of an op. REQUIRES: the op is of the problem.
double duration(const PipelineProblem& problem, const PipelineOp& op);

// The same problem with every backward that is still whole cut into two halves.
PipelineProblem with_split_backward(PipelineProblem problem);

// "forward of micro-batch 3 of 'actor', stage 0 (node 7)".
std::string describe(const PipelineProblem& problem, const PipelineOp& op);

// Activations at their highest on each node: at one instant releases come before takes.
// REQUIRES: the timeline has the problem's nodes and only ops of the problem.
std::vector<double> peak_memory(const PipelineProblem& problem, const PipelineTimeline& timeline);

// Checks a timeline against the problem alone, trusting nothing that made it: every op exactly once
// on its node for its duration, none before what it waits for (with the lag between nodes), one at
// a time, in order, and within the memory limit. The error names the first op that breaks a rule.
Status verify(const PipelineProblem& problem, const PipelineTimeline& timeline);

// Makespan of a timeline; 0 without ops.
double makespan(const PipelineTimeline& timeline);

// Two numbers that differ by no more than rounding of sums of the size of `scale`.
bool nearly_equal(double a, double b, double scale);

}  // namespace braid::inline schedule
