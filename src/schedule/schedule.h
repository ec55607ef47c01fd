// A pipeline schedule: the order in which each stage runs the forwards and backwards of its
// micro-batches. A value; all functions are pure. With `chunks` > 1 the model is cut into stages *
// chunks virtual pipeline stages, called parts here, and stage s holds parts s, s + stages, s + 2
// stages, ... An op of a part waits for the same micro-batch's forward on the part before, or its
// backward on the part after.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"

namespace braid::inline schedule {

struct ScheduleOp {
  enum class Kind { kForward, kBackward };
  Kind kind = Kind::kForward;
  int32_t stage = 0;
  int32_t micro_batch = 0;
  int32_t chunk = 0;  // part of the model: chunk * stages + stage
  friend bool operator==(const ScheduleOp&, const ScheduleOp&) = default;
};

struct Schedule {
  int32_t stages = 1;
  int32_t micro_batches = 1;
  std::vector<std::vector<ScheduleOp>> per_stage;  // [stages]
  int32_t chunks = 1;                              // of each stage
  bool backward = true;                            // false: an inference pass, forwards alone
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// All forwards, then all backwards in reverse order (Huang et al., 2019, §2.2). Every micro-batch's
// activations are alive at once. REQUIRES: stages >= 1, micro_batches >= 0.
Schedule gpipe(int32_t stages, int32_t micro_batches);

// After a warm-up of stages - 1 - stage forwards, one forward and one backward in turn (Narayanan
// et al., 2019, §3.2, synchronous form): at most stages - stage micro-batches are alive.
// REQUIRES: stages >= 1, micro_batches >= 0.
Schedule one_f_one_b(int32_t stages, int32_t micro_batches);

// 1F1B over `chunks` parts of the model per stage: the bubble shrinks by the number of chunks, for
// as many more messages (Narayanan et al., arXiv 2104.04473, §2.2). REQUIRES: stages >= 1, chunks
// >= 1, micro_batches >= 0, and with chunks > 1 a multiple of stages.
Schedule interleaved_one_f_one_b(int32_t stages, int32_t chunks, int32_t micro_batches);

// Forwards in order of micro-batches: inference. With several chunks a group of `stages`
// micro-batches passes the first parts before the second ones.
Schedule forward_only(int32_t stages, int32_t chunks, int32_t micro_batches);

// The part before (forward) or after (backward) that an op waits for; -1: none.
int32_t waits_for_part(const Schedule& schedule, const ScheduleOp& op);

// Start and end of every op, in the units of the durations, when each runs as soon as its stage is
// free and its input is there: [stage][position].
struct OpTimes {
  std::vector<std::vector<double>> start, end;
  double makespan = 0;
};
// `duration(op)` is the time of an op; a message between stages takes `lag`. REQUIRES:
// verify(schedule) is ok.
OpTimes replay(const Schedule& schedule, const std::function<double(const ScheduleOp&)>& duration,
               double lag = 0);

// Each stage runs the forward and later the backward of each micro-batch of each chunk exactly
// once, and the stages never wait for each other in a circle. The error names the first op that
// breaks this.
Status verify(const Schedule& schedule);

// The most micro-batches (of one chunk each) whose forward ran and whose backward has not, on one
// stage.
// REQUIRES: verify(schedule) is ok.
int32_t peak_in_flight(const Schedule& schedule, int32_t stage);

}  // namespace braid::inline schedule
