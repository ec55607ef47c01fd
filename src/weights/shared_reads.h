// Whether ranks that read the same slices of files of weights have read the same numbers: on
// several machines, or in several folders, files of one name may differ. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>

#include "comm/world.h"
#include "config/options.h"
#include "nn/read_blocks.h"
#include "program/program.h"

namespace braid::inline weights {

// What a refusal of files that differ ends with.
inline constexpr const char* kSameFiles =
    "all ranks must read the same files: copy them to every machine, or name a folder that all "
    "machines share";

// What this rank has read for each copy that is loaded from files, by index in the program.
using CopyReads = std::map<int32_t, ReadBlocks>;

// All ranks call it. Ranks of a copy that hold equal slices compare all of what they have read with
// the first of them; that one compares blocks that it has in common with other slices of the copy,
// or of the first copy from the same files. kInvalidInput names the ranks, the key, the file and
// the tensor.
Status agree_on_reads(World& world, const Config& config, const Program& program,
                      const CopyReads& reads);

}  // namespace braid::inline weights
