// Where ranks hold equal slices of a model (data parallel), one of them may read the files and send
// the others what it has read: for disks that all share. runtime.load
#pragma once

#include <memory>

#include "comm/world.h"
#include "nn/slice_sharing.h"
#include "program/program.h"

namespace braid::inline weights {

// The ranks that hold the slices of a copy that `rank` holds, in the order of their data-parallel
// ranks; that rank alone under ZeRO-3, where no two slices are equal. REQUIRES: it holds one.
std::vector<int64_t> equal_holders(const WeightCopy& copy, DeviceId rank);

// All of these ranks call it together; null for a rank that is alone. Errors: those of
// World::group().
Result<std::unique_ptr<SliceSharing>> connect_readers(const WeightCopy& copy, World& world);

}  // namespace braid::inline weights
