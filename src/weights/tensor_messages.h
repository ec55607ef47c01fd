// The weights of a trained role that lie on several ranks, as whole tensors on the first rank of
// the job. Not thread-safe.
#pragma once

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"

namespace braid::inline weights {

// `from` sends what it has, rank 0 returns it; the others return nothing.
Result<NamedTensors> pass_to_first(const NamedTensors& tensors, int64_t from,
                                   Communicator& everyone);

}  // namespace braid::inline weights
