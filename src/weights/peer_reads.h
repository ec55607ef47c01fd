// Where ranks hold equal slices of a model (data parallel), one of them may read the files and send
// the others what it has read: for disks that all share. runtime.load
#pragma once

#include "comm/world.h"
#include "program/program.h"

namespace braid::inline weights {

// The ranks that hold the slices of a copy that this rank holds, in the order of their
// data-parallel ranks (LoadOptions::readers). All of them call it together; null for a rank that is
// alone, as under ZeRO-3, where no two slices are equal. Errors: those of World::group(). REQUIRES:
// it holds one.
Result<Communicator*> connect_readers(const WeightCopy& copy, World& world);

}  // namespace braid::inline weights
