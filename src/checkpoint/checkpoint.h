// Checkpoints on disk: a folder FOLDER/step-000012 (or step-000012-open, within the step after)
// with a safetensors file of slices for each group of tensors and rank that wrote
// (checkpoint/shard_file.h), state.json, and manifest.json with the size and a SHA-256 of each. A
// checkpoint is written under a temporary name, synced and renamed, so a folder of that name is
// always complete; damage that happens later is found by sizes and hashes. One job writes to a
// folder at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/saved_slice.h"
#include "config/options.h"
#include "host/process.h"

namespace braid::inline checkpoint {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Everything that continuing needs, or the share of it that a rank of a job writes.
struct CheckpointState {
  std::map<std::string, std::vector<SavedSlice>> tensors;  // by group ("actor.weights")
  Json numbers = Json::object();  // state.json; doubles survive bit for bit
};

// Where a job saves.
struct SavePlace {
  std::string folder;
  std::string job;  // tells it from every other job, also from this one started again
};

// One of the ranks that write a checkpoint together.
struct SaveRank {
  int64_t rank = 0, ranks = 1;
};

// The moment of a run that a checkpoint is of.
struct SavePoint {
  int64_t step = 0;   // steps completed
  bool open = false;  // within the step after these
  friend auto operator<=>(const SavePoint&, const SavePoint&) = default;
};

struct CheckpointInfo {
  SavePoint at;
  std::string path;
};

// Writes the whole state at a point and returns its path. `metrics` is the row of the last complete
// step, by which keep_best chooses. An existing checkpoint of this point is replaced in one rename.
// Errors: too little free space (nothing is written then), a failed write.
Result<std::string> save_checkpoint(const std::string& folder, const SavePoint& at,
                                    const std::map<std::string, double>& metrics,
                                    const CheckpointState& state);

// The folder of a process that writes checkpoints to it until the handle closes (or the process
// ends, however it ends); an error if another process has it. Makes the folder.
Result<FileHandle> claim_folder(const std::string& folder, const std::string& key);

// Complete checkpoints of a folder, oldest first; a missing folder has none.
Result<std::vector<CheckpointInfo>> list_checkpoints(const std::string& folder);

// Removes every checkpoint of a folder.
Status remove_checkpoints(const std::string& folder);

// Checks every size and hash; returns the steps completed.
Result<int64_t> verify_checkpoint(const std::string& path);

// The metrics row that a checkpoint was saved with.
Result<std::map<std::string, double>> checkpoint_metrics(const std::string& path);

// state.json alone, after its hash.
Result<Json> checkpoint_numbers(const std::string& path);

// The error of a damaged checkpoint: `failure` with the newest earlier one whose manifest,
// state.json and sizes of files are right, as a key=value. No tensor is read for it.
Status refused_as_damaged(const std::string& path, const Status& failure);

// The metric of checkpoint.keep_best: "NAME" or "max:NAME", highest is best; "min:NAME", lowest.
struct BestMetric {
  std::string name;
  bool lowest = false;
};
BestMetric parse_best_metric(const std::string& keep_best);

// Rejects values without meaning; errors name the key.
Status validate(const CheckpointConfig& config);

// After a save at a point: removes all but the last keep_last checkpoints and the best one, earlier
// ones within a step, and those of later points, which belong to a run that was left behind. An
// unreadable checkpoint is neither counted nor removed.
Status apply_retention(const std::string& folder, const SavePoint& at,
                       const CheckpointConfig& config);

// Of a checkpoint beside its tensors: numbers, headers, manifest, blocks of the file system.
inline constexpr int64_t kCheckpointOverheadBytes = 1 << 20;
// What a checkpoint of the state takes on the disk, rounded up.
int64_t size_bytes(const CheckpointState& state);

// Fails with both numbers when the file system of `folder` has less than needed_bytes free.
Status check_free_space(const std::string& folder, int64_t needed_bytes);

}  // namespace braid::inline checkpoint
