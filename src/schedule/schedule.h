// A pipeline schedule: the order in which each stage runs the forwards and backwards of its
// micro-batches. A value; all functions are pure. An op of stage s waits for the same micro-batch's
// forward on stage s - 1, or its backward on stage s + 1.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace braid {

struct ScheduleOp {
  enum class Kind { kForward, kBackward };
  Kind kind = Kind::kForward;
  int32_t stage = 0;
  int32_t micro_batch = 0;
  friend bool operator==(const ScheduleOp&, const ScheduleOp&) = default;
};

struct Schedule {
  int32_t stages = 1;
  int32_t micro_batches = 1;
  std::vector<std::vector<ScheduleOp>> per_stage;  // [stages]
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// All forwards, then all backwards in reverse order (Huang et al., 2019, §2.2). Every micro-batch's
// activations are alive at once. REQUIRES: stages >= 1, micro_batches >= 0.
Schedule gpipe(int32_t stages, int32_t micro_batches);

// After a warm-up of stages - 1 - stage forwards, one forward and one backward in turn (Narayanan
// et al., 2019, §3.2, synchronous form): at most stages - stage micro-batches are alive.
// REQUIRES: stages >= 1, micro_batches >= 0.
Schedule one_f_one_b(int32_t stages, int32_t micro_batches);

// Each stage runs the forward and later the backward of each micro-batch exactly once, and the
// stages never wait for each other in a circle. The error names the first op that breaks this.
Status verify(const Schedule& schedule);

// The most micro-batches whose forward ran and whose backward has not, on one stage.
// REQUIRES: verify(schedule) is ok.
int32_t peak_in_flight(const Schedule& schedule, int32_t stage);

}  // namespace braid
