// Where ranks hold equal slices of a model (data parallel), one of them may read the files and send
// the others what it has read: for disks that all share. Ranks of one machine share what its memory
// keeps of a file, so that nothing is read twice there. runtime.load
#pragma once

#include "comm/world.h"
#include "config/options.h"
#include "program/program.h"

namespace braid::inline weights {

// Whether they do so in this job. Where the configuration leaves it open (auto) the first rank
// looks whether ranks are on several machines and files of roles on a disk of the network, and says
// in the log what it chose. All ranks call it together; `world`: null for one rank.
Result<bool> reads_for_peers(const Config& config, const Graph& graph, World* world);

// The ranks that hold the slices of a copy that this rank holds, in the order of their
// data-parallel ranks (LoadOptions::readers). All of them call it together; null for a rank that is
// alone, as under ZeRO-3, where no two slices are equal. Errors: those of World::group(). REQUIRES:
// it holds one.
Result<Communicator*> connect_readers(const WeightCopy& copy, World& world);

}  // namespace braid::inline weights
