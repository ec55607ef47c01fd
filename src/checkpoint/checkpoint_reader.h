// What a checkpoint holds, read slice by slice: whichever ranks wrote it, a reader takes from their
// files what it wants, and compares the hashes of what it reads. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/shard_file.h"

namespace braid::inline checkpoint {

class CheckpointReader {
 public:
  // Checks manifest and state.json. Files of tensors are opened when something is wanted of them,
  // and in turn from `first` on, a share of all of them in [0, 1): where ranks that read lie as
  // those that wrote, each finds in its own file what it wants. kNotFound: there is no checkpoint;
  // kDataLoss names the file and what is wrong with it.
  static Result<CheckpointReader> open(const std::string& path, double first = 0);
  // Of a state in memory.
  CheckpointReader(CheckpointState state);  // NOLINT: implicit by design

  const Json& numbers() const { return numbers_; }
  bool has(const std::string& group) const { return groups_.count(group) > 0; }

  // Fills the values of slices of a group's tensors. kDataLoss: a file is damaged; else an error
  // names what the group lacks, or which tensor has another shape or type.
  Status read(const std::string& group, const std::vector<SavedSlice>& wanted);
  // The names of a group's tensors, from the headers of all of its files.
  Result<std::set<std::string>> tensors(const std::string& group);
  // All of a group's tensors in whole.
  Result<NamedTensors> whole(const std::string& group);

 private:
  struct Part {
    std::string path;
    ManifestEntry expected;
    std::optional<ShardFile> file;  // once it is open
  };
  CheckpointReader() = default;
  Result<std::vector<Part>*> parts_of(const std::string& group);
  static Result<ShardFile*> opened(Part& part);

  Json numbers_;
  double first_ = 0;
  std::map<std::string, std::vector<Part>> groups_;
};

}  // namespace braid::inline checkpoint
