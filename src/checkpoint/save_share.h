// One checkpoint that all ranks of a job write together into one folder: each its share, side by
// side; the first one commits it when all shares are there. Until then, and where that fails or a
// process dies, the folder has the checkpoints that it had. Thread-safe for different folders.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"

namespace braid::inline checkpoint {

// On the first rank, before any other begins: removes what an interrupted save left, unless another
// job still writes to it, and makes room for one of so many bytes. Errors: too little free space.
Status prepare_save(const SavePlace& place, const SavePoint& at, int64_t bytes);

// Writes and syncs the files of this rank and says so beside them, with sizes and hashes, or says
// what failed. Of the numbers those of all ranks are joined. REQUIRES: prepare_save() on the first.
Status write_share(const SavePlace& place, const SavePoint& at, const SaveRank& self,
                   const CheckpointState& share);

// On the first rank: waits until all shares are written, writes state.json and then the manifest,
// and gives the checkpoint its name, in place of one of this point. Returns its path. `stopped` is
// asked while shares are missing: true gives up. An error takes away what was written; that of a
// rank names it.
Result<std::string> commit_save(const SavePlace& place, const SavePoint& at, int64_t ranks,
                                const std::map<std::string, double>& metrics,
                                const std::function<bool()>& stopped = {});

}  // namespace braid::inline checkpoint
