// Names of folders and files of checkpoints. Not for callers outside checkpoint. Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"

namespace braid::inline checkpoint {

// "step-000012", or "step-000012-open".
std::string folder_name(const SavePoint& at);
// The point of such a name; nothing for any other.
std::optional<SavePoint> point_of(const std::string& name);

// Takes the name of a complete checkpoint away, then removes it: what is half removed no longer
// looks like one.
Status remove_checkpoint(const std::string& folder, const CheckpointInfo& info);
// Whether a folder of that name is the rest of a removal that was interrupted.
bool is_removed(const std::string& name);
// What cannot be removed is a warning.
void remove_folder(const std::string& path);

// The file of a group of tensors that a rank of several writes: "GROUP.rank-0003.safetensors"; of
// one "GROUP.safetensors".
std::string shard_name(const std::string& group, const SaveRank& self);
// The group of such a file and the rank that wrote it; nothing for any other.
struct ShardOf {
  std::string group;
  int64_t rank = 0;
};
std::optional<ShardOf> shard_of(const std::string& file);

}  // namespace braid::inline checkpoint
