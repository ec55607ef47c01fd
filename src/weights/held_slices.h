// What a rank holds of a role that a run changes, as slices of the whole model's tensors: what it
// writes of them to a checkpoint, and what it reads. Not thread-safe.
#pragma once

#include <vector>

#include "checkpoint/saved_slice.h"
#include "weights/load_models.h"

namespace braid::inline weights {

// Weights by parameter; by "PARAMETER.STATE" what the optimizer keeps, or of a role that follows
// another its average where its weights are not it.
struct RoleSlices {
  std::vector<SavedSlice> weights, moments;
};

// All that this rank holds. The values are flat runs of its own memory, so who fills them fills the
// role. REQUIRES: the role is trained, or follows another one.
RoleSlices held_slices(const ModelInstance& role);

// Where this rank is among those that hold equal slices of a role: of the ranks that ZeRO shards
// over (or all data-parallel ones), and of the groups of these.
struct Replica {
  int64_t data = 0, data_ranks = 1;
  int64_t across = 0, across_ranks = 1;
};
// What this rank writes: of what several hold each an equal share of the bytes.
RoleSlices own_slices(const ModelInstance& role, const Replica& replica);

}  // namespace braid::inline weights
