// Brings a role's weights from its home copy into a copy in another layout (reshard/), whole or in
// slices (train/weight_shards.h) on either side. Where weights are slices they are brought layer by
// layer: never more than one layer of them is whole on account of a move. Not thread-safe.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "program/program.h"
#include "program/tensor_map.h"
#include "runtime/load_models.h"

namespace braid {

struct WeightMove {
  const WeightCopy& from;
  const WeightCopy& to;
  const std::vector<Message>& messages;  // those of the program, in its order
  const TensorMap& map;                  // of what moves
  ModelInstance* source = nullptr;       // null where this rank has nothing of it
  ModelInstance* target = nullptr;
  Communicator* everyone = nullptr;
  Communicator* holders = nullptr;  // ranks that share the target's slices; null: it has none
};

// All ranks that have a part of either copy call it. kDeadline, kUnavailable: a message failed.
Status move_weights(const WeightMove& move, DeviceId self);

}  // namespace braid
