// What one call needs of a device by itself: weights and optimizer state in its layout, and what it
// holds while it runs. The same bytes as in the simulation of a step (sim/step_memory.cc), without
// the time of other calls, for the search. Keeps what calls have in common, so an object belongs to
// one thread.
#pragma once

#include <map>

#include "sim/call_time.h"

namespace braid::inline sim {

// Bytes of one device.
struct CallMemory {
  double weights = 0;
  double optimizer = 0;  // training
  double transient = 0;  // gradients, activations, logits, gathered blocks, cache
  double total() const { return weights + optimizer + transient; }
};

class CallMeter {
 public:
  // `problem` must outlive the meter.
  CallMeter(const PlanningProblem& problem, SampleLengths lengths)
      : problem_(&problem), cuts_(problem, std::move(lengths)) {}

  // Of the fullest pipeline stage. Every micro-batch counts as the largest. A cache without a
  // budget counts as what all sequences need at once. REQUIRES: the plan of the call is valid;
  // `cost` is CallCost::make(call, plan, ...); `timer` is of the same problem and lengths.
  CallMemory memory(const Call& call, const CallCost& cost, CallTimer& timer);

 private:
  struct Largest {
    MicroBatch batch;           // memory depends on its tokens alone
    int64_t micro_batches = 0;  // of a data-parallel rank
  };
  // What cuts depend on.
  struct CutKey {
    int dp = 1, cp = 1, pp = 1, interleave = 1;
    int64_t micro_batches = 1, micro_tokens = 0, samples = 0, parts = 1;
    bool in_order = false;
    friend auto operator<=>(const CutKey&, const CutKey&) = default;
  };
  int64_t parts_of(const Call& call) const;  // mini-batches
  const Largest& largest(const Call& call, const CallCost& cost, int64_t parts);
  double pass_bytes(const Call& call, const CallCost& cost, int stage);
  double cache_bytes(const Call& call, const CallCost& cost, CallTimer& timer) const;

  const PlanningProblem* problem_;
  WorkCuts cuts_;
  std::map<CutKey, Largest> largest_;
};

}  // namespace braid::inline sim
