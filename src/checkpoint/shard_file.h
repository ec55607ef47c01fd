// A file of a checkpoint that holds slices of tensors: safetensors, whose header says of each entry
// which tensor of the whole model it is of, that tensor's shape, where the slice begins in it, and
// the SHA-256 of its bytes. Not for callers outside checkpoint. Not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/saved_slice.h"
#include "nn/safetensors.h"

namespace braid::inline checkpoint {

// Writes and syncs such a file; returns what the manifest says of it.
Result<ManifestEntry> write_shard(const std::string& path, const std::vector<SavedSlice>& slices);

class ShardFile {
 public:
  // Compares size and header with the manifest, or the whole file where that has its hash.
  // kDataLoss names the file and what is wrong with it.
  static Result<ShardFile> open(const std::string& path, const ManifestEntry& expected);
  // Slices in memory in the place of a file.
  explicit ShardFile(std::vector<SavedSlice> slices);

  // "" of slices in memory.
  std::string path() const { return file_ == nullptr ? "" : file_->path(); }
  size_t size() const { return slices_.size(); }
  // Whether an entry is this slice.
  bool has(const std::string& tensor, const PlacedSlice& slice) const;
  // Which slice an entry is; its values only say size and type.
  const SavedSlice& slice(size_t entry) const { return slices_[entry]; }
  // Its values, which alias the file; their hash is compared at the first call. kDataLoss.
  Result<at::Tensor> values(size_t entry);

 private:
  ShardFile() = default;
  Status parse();

  std::unique_ptr<SafetensorsFile> file_;  // null: in memory
  std::vector<SavedSlice> slices_;
  std::vector<std::string> names_;   // of the entries in the file
  std::vector<std::string> hashes_;  // of the entries; "" once compared
};

}  // namespace braid::inline checkpoint
