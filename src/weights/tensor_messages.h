// What checkpoints and exports need of a trained role whose tensors lie on several ranks: as whole
// tensors, on the first rank of the job. Not thread-safe.
#pragma once

#include "comm/communicator.h"
#include "weights/run_state.h"

namespace braid::inline weights {

// Slices of a model's tensors and moments as whole ones; all ranks of its tensor-parallel group
// call it and have the result.
Result<RoleTensors> whole_tensors(const Model& model, const RoleTensors& slices);

// `from` sends what it has, rank 0 returns it; the others return nothing.
Result<RoleTensors> pass_to_first(const RoleTensors& tensors, int64_t from, Communicator& everyone);

// Adds the tensors whose names are new; counters are those of the last.
void append_new(const RoleTensors& part, RoleTensors* all);

}  // namespace braid::inline weights
