// What a checkpoint holds, read slice by slice: whichever ranks wrote it, a reader takes from their
// files what it wants, and compares the hashes of what it reads. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/resumed_checkpoint.h"
#include "checkpoint/shard_file.h"

namespace braid::inline checkpoint {

class CheckpointReader {
 public:
  // Checks manifest and state.json. Files of tensors are opened when something is wanted of them:
  // those that the manifest says have it. Where that does not say it, as in older checkpoints, in
  // turn from `first` on, a share of all of them in [0, 1): where ranks that read lie as those that
  // wrote, each finds in its own file most of what it wants. kNotFound: there is no checkpoint;
  // kDataLoss names the file and what is wrong with it.
  static Result<CheckpointReader> open(const std::string& path, double first = 0);
  // Of one whose manifest and state.json are read.
  static CheckpointReader of(ResumedCheckpoint checkpoint, double first = 0);
  // Of a state in memory.
  CheckpointReader(CheckpointState state);  // NOLINT: implicit by design

  const Json& numbers() const { return numbers_; }
  bool has(const std::string& group) const { return groups_.count(group) > 0; }

  // Fills the values of slices of a group's tensors. kDataLoss: a file is damaged; else an error
  // names what the group lacks, or which tensor has another shape or type.
  Status read(const std::string& group, const std::vector<SavedSlice>& wanted);
  // The names of a group's tensors, from the manifest, or the headers of all of its files.
  Result<std::set<std::string>> tensors(const std::string& group);
  // All of a group's tensors in whole.
  Result<NamedTensors> whole(const std::string& group);

  // Files of tensors that are open.
  int64_t files_opened() const { return files_opened_; }

 private:
  struct Part {
    int64_t rank = 0;  // that wrote it
    std::string path;
    ManifestEntry expected;
    std::optional<ShardFile> file;  // once it is open
  };
  struct Group {
    std::vector<Part> parts;
    std::optional<SliceIndex> index;  // which of them have what, where the manifest says it
  };
  // Of some parts, by their place among those of the group: slices that one must have.
  using Expected = std::map<size_t, std::vector<std::pair<std::string, PlacedSlice>>>;

  CheckpointReader() = default;
  Result<Group*> find(const std::string& group);
  Result<ShardFile*> opened(Group& group, Part& part);
  Status check_listed(const Group& group, const Part& part) const;
  Result<Expected> parts_with(const Group& group, const std::vector<SavedSlice>& wanted) const;
  Result<Expected> parts_to_read(const Group& group, const std::vector<SavedSlice>& wanted) const;

  Json numbers_;
  double first_ = 0;
  int64_t files_opened_ = 0;
  std::map<std::string, Group> groups_;
};

}  // namespace braid::inline checkpoint
