// Brings a role's weights from its home copy into a copy in another layout (weights/reallocate.h),
// whole or in slices (train/weight_shards.h) on either side. Where weights are slices they are
// brought layer by layer: never more than one layer of them is whole on account of a move. Not
// thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "program/program.h"
#include "program/tensor_map.h"
#include "weights/load_models.h"

namespace braid::inline weights {

struct WeightMove {
  const WeightCopy& from;
  const WeightCopy& to;
  const std::vector<Message>& messages;  // those of the program, in its order
  const TensorMap& map;                  // of what moves
  int32_t channel = 0;                   // of its messages among all ranks
  bool compare = false;                  // as in ReallocateOptions
  ModelInstance* source = nullptr;       // null where this rank has nothing of it
  ModelInstance* target = nullptr;
  Communicator* everyone = nullptr;
  Communicator* holders = nullptr;  // ranks that share the target's slices; null: it has none
};

// A move on one rank, which passes beside what it computes. All members of a reallocation make one;
// those that gather slices finish theirs in one order.
class StartedMove {
 public:
  // REQUIRES: what the move refers to outlives the object.
  StartedMove(const WeightMove& move, DeviceId self);
  ~StartedMove();
  StartedMove(const StartedMove&) = delete;
  StartedMove& operator=(const StartedMove&) = delete;

  // Begins what need not wait: nothing where weights are slices. From here to finish() the source
  // must not change and the target must not be read.
  Status start();
  // Whether all that this rank sends goes without it: not where weights are slices.
  bool goes_on() const;
  // kDeadline, kUnavailable: a message failed; kDataLoss: as ReallocationRun::finish().
  Status finish();
  // As ReallocationRun::begun_beside().
  const TransferCounts& begun_beside() const;

 private:
  class Mover;
  std::unique_ptr<Mover> mover_;
};

}  // namespace braid::inline weights
