#include "checkpoint/checkpoint_reader.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/manifest.h"
#include "host/file.h"

namespace braid::inline checkpoint {
namespace {

// Slices that are wanted of a group, and what of each is there: no number of it twice, so that as
// many as it has are all of it.
class Wanted {
 public:
  explicit Wanted(const std::vector<SavedSlice>& slices) : slices_(slices) {
    for (size_t i = 0; i < slices.size(); ++i) {
      left_.push_back(slices[i].values.numel());
      open_ += left_.back() > 0 ? 1 : 0;
      taken_.emplace_back();
      of_tensor_[slices[i].tensor].push_back(i);
    }
  }

  bool filled() const { return open_ == 0; }
  // Takes over what an entry of a file has of them.
  Status take(ShardFile& file, size_t entry);
  // An error where something is missing.
  Status check() const;

 private:
  Status take(ShardFile& file, size_t entry, size_t wanted);
  Status note(const ShardFile& file, size_t wanted, const PlacedSlice& place);

  // A rectangle of a wanted slice, and the file that had it.
  struct Taken {
    PlacedSlice place;
    std::string file;
  };

  const std::vector<SavedSlice>& slices_;
  std::vector<int64_t> left_;  // numbers of each that are missing
  std::vector<std::vector<Taken>> taken_;
  int64_t open_ = 0;  // slices of which something is missing
  std::map<std::string, std::vector<size_t>> of_tensor_;
  std::set<std::string> seen_;
};

std::string type_text(const at::Tensor& values, const std::vector<int64_t>& shape) {
  return cat(values.scalar_type(), at::IntArrayRef(shape));
}

Status Wanted::take(ShardFile& file, size_t entry) {
  const SavedSlice& saved = file.slice(entry);
  const auto found = of_tensor_.find(saved.tensor);
  if (found == of_tensor_.end()) return ok_status();
  seen_.insert(saved.tensor);
  for (const size_t wanted : found->second) {
    const SavedSlice& own = slices_[wanted];
    if (own.shape != saved.shape || own.values.scalar_type() != saved.values.scalar_type())
      return invalid_input(cat("tensor ", saved.tensor, " is ",
                               type_text(saved.values, saved.shape), ", the model's is ",
                               type_text(own.values, own.shape)));
    BRAID_TRY(take(file, entry, wanted));
  }
  return ok_status();
}

// The rectangle that both have.
Status Wanted::take(ShardFile& file, size_t entry, size_t wanted) {
  const SavedSlice &saved = file.slice(entry), &own = slices_[wanted];
  PlacedSlice both;
  for (size_t dim = 0; dim < own.shape.size(); ++dim) {
    const auto at = static_cast<int64_t>(dim);
    const int64_t begin = std::max(saved.offset[dim], own.offset[dim]);
    const int64_t end =
        std::min(saved.offset[dim] + saved.values.size(at), own.offset[dim] + own.values.size(at));
    if (end <= begin) return ok_status();
    both.offset.push_back(begin);
    both.extent.push_back(end - begin);
  }
  BRAID_TRY(note(file, wanted, both));
  BRAID_ASSIGN(at::Tensor from, file.values(entry));
  at::Tensor to = own.values;
  for (size_t dim = 0; dim < own.shape.size(); ++dim) {
    const auto at = static_cast<int64_t>(dim);
    from = from.narrow(at, both.offset[dim] - saved.offset[dim], both.extent[dim]);
    to = to.narrow(at, both.offset[dim] - own.offset[dim], both.extent[dim]);
  }
  to.copy_(from);
  left_[wanted] -= to.numel();
  open_ -= left_[wanted] == 0 ? 1 : 0;
  return ok_status();
}

// Numbers that are there twice would hide others that are missing.
Status Wanted::note(const ShardFile& file, size_t wanted, const PlacedSlice& place) {
  const std::string& tensor = slices_[wanted].tensor;
  for (const Taken& earlier : taken_[wanted])
    if (overlap(earlier.place, place))
      return {Code::kDataLoss, cat(file.path(), ": has numbers of ", place_text(tensor, place),
                                   " that ", earlier.file == file.path() ? "it" : earlier.file,
                                   " has too, in ", place_text(tensor, earlier.place))};
  taken_[wanted].push_back({place, file.path()});
  return ok_status();
}

Status Wanted::check() const {
  for (size_t i = 0; i < slices_.size(); ++i)
    if (left_[i] > 0) {
      const std::string& tensor = slices_[i].tensor;
      if (seen_.count(tensor) == 0) return invalid_input(cat("has no tensor ", tensor));
      return {Code::kDataLoss, cat("a part of tensor ", tensor, " is in no file: of ",
                                   place_text(tensor, place_of(0, slices_[i])), " ", left_[i],
                                   " numbers are missing")};
    }
  return ok_status();
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open(const std::string& path, double first) {
  if (!path_exists(join_path(path, kManifestFile)))
    return not_found(cat(path, " is not a checkpoint (it has no ", kManifestFile,
                         "); name a folder such as RUN/checkpoints/step-000012"));
  BRAID_ASSIGN(ResumedCheckpoint checkpoint, ResumedCheckpoint::read(path));
  return of(std::move(checkpoint), first);
}

CheckpointReader CheckpointReader::of(ResumedCheckpoint checkpoint, double first) {
  CheckpointReader out;
  out.first_ = first;
  const Manifest& manifest = checkpoint.manifest();
  for (const auto& [name, entry] : manifest.files)
    if (const auto shard = shard_of(name))
      out.groups_[shard->group].parts.push_back(
          {shard->rank, join_path(checkpoint.path(), name), entry, {}});
  if (manifest.tensors)
    for (auto& [name, group] : out.groups_) {
      const auto said = manifest.tensors->find(name);
      group.index = said == manifest.tensors->end() ? SliceIndex() : said->second;
    }
  out.numbers_ = std::move(checkpoint).take_numbers();
  return out;
}

CheckpointReader::CheckpointReader(CheckpointState state) : numbers_(std::move(state.numbers)) {
  for (auto& [group, slices] : state.tensors)
    groups_[group].parts.push_back({0, "", {}, ShardFile(std::move(slices))});
}

Result<CheckpointReader::Group*> CheckpointReader::find(const std::string& group) {
  const auto found = groups_.find(group);
  if (found != groups_.end()) return &found->second;
  return invalid_input(cat("has no ", shard_name(group, {}), ": the run trained other models"));
}

Result<ShardFile*> CheckpointReader::opened(Group& group, Part& part) {
  if (!part.file) {
    BRAID_ASSIGN(part.file, ShardFile::open(part.path, part.expected));
    ++files_opened_;
    BRAID_TRY(check_listed(group, part));
  }
  return &*part.file;
}

// What the file has is what the manifest says of it: nobody would find the rest.
Status CheckpointReader::check_listed(const Group& group, const Part& part) const {
  if (!group.index) return ok_status();
  for (size_t entry = 0; entry < part.file->size(); ++entry) {
    const SavedSlice& slice = part.file->slice(entry);
    const PlacedSlice place = place_of(part.rank, slice);
    const auto said = group.index->find(slice.tensor);
    TensorPlaces known;
    if (said != group.index->end()) {
      BRAID_ASSIGN(known, places_of(slice.tensor, said->second));
    }
    const bool listed = known.shape == slice.shape &&
                        std::count(known.slices.begin(), known.slices.end(), place) == 1;
    if (!listed)
      return {Code::kDataLoss, cat(part.path, ": its header has ", place_text(slice.tensor, place),
                                   ", which the manifest does not say of it")};
  }
  return ok_status();
}

// By the manifest.
Result<CheckpointReader::Expected> CheckpointReader::parts_with(
    const Group& group, const std::vector<SavedSlice>& wanted) const {
  std::map<int64_t, size_t> part_of;
  for (size_t i = 0; i < group.parts.size(); ++i) part_of[group.parts[i].rank] = i;
  Expected out;
  for (const SavedSlice& slice : wanted) {
    const auto said = group.index->find(slice.tensor);
    if (said == group.index->end()) continue;
    BRAID_ASSIGN(const TensorPlaces places, places_of(slice.tensor, said->second));
    const PlacedSlice own = place_of(0, slice);
    for (const PlacedSlice& place : places.slices) {
      // Of a tensor of another shape any file has the words to refuse it.
      if (places.shape == slice.shape && !overlap(own, place)) continue;
      const auto part = part_of.find(place.rank);
      if (part == part_of.end())
        return Status(Code::kDataLoss,
                      cat("the manifest says that rank ", place.rank, " has ",
                          place_text(slice.tensor, place), ", but lists no file of it"));
      out[part->second].emplace_back(slice.tensor, place);
    }
  }
  return out;
}

// All of them where the manifest does not say who has what.
Result<CheckpointReader::Expected> CheckpointReader::parts_to_read(
    const Group& group, const std::vector<SavedSlice>& wanted) const {
  if (group.index) return parts_with(group, wanted);
  Expected out;
  for (size_t i = 0; i < group.parts.size(); ++i) out[i];
  return out;
}

Status CheckpointReader::read(const std::string& group, const std::vector<SavedSlice>& wanted) {
  const at::NoGradGuard no_grad;
  BRAID_ASSIGN(Group* const from, find(group));
  BRAID_ASSIGN(const Expected to_read, parts_to_read(*from, wanted));
  Wanted missing(wanted);
  const size_t count = from->parts.size();
  const auto begin = static_cast<size_t>(first_ * static_cast<double>(count));
  for (size_t i = 0; i < count && !missing.filled(); ++i) {
    const auto expected = to_read.find((begin + i) % count);
    if (expected == to_read.end()) continue;
    Part& part = from->parts[expected->first];
    BRAID_ASSIGN(ShardFile* const file, opened(*from, part));
    for (const auto& [tensor, slice] : expected->second)
      if (!file->has(tensor, slice))
        return {Code::kDataLoss, cat(part.path, ": its header has no ", place_text(tensor, slice),
                                     ", which the manifest says of it")};
    for (size_t entry = 0; entry < file->size(); ++entry) BRAID_TRY(missing.take(*file, entry));
  }
  return missing.check();
}

Result<std::set<std::string>> CheckpointReader::tensors(const std::string& group) {
  BRAID_ASSIGN(Group* const from, find(group));
  std::set<std::string> out;
  if (from->index) {
    for (const auto& [tensor, places] : *from->index) out.insert(tensor);
    return out;
  }
  for (Part& part : from->parts) {
    BRAID_ASSIGN(const ShardFile* const file, opened(*from, part));
    for (size_t entry = 0; entry < file->size(); ++entry) out.insert(file->slice(entry).tensor);
  }
  return out;
}

Result<NamedTensors> CheckpointReader::whole(const std::string& group) {
  BRAID_ASSIGN(Group* const from, find(group));
  std::map<std::string, SavedSlice> by_name;
  for (Part& part : from->parts) {
    BRAID_ASSIGN(const ShardFile* const file, opened(*from, part));
    for (size_t entry = 0; entry < file->size(); ++entry) {
      const SavedSlice& slice = file->slice(entry);
      if (by_name.count(slice.tensor) == 0)
        by_name.emplace(slice.tensor,
                        SavedSlice(slice.tensor, at::empty(slice.shape, slice.values.options())));
    }
  }
  std::vector<SavedSlice> wanted;
  NamedTensors out;
  for (const auto& [name, slice] : by_name) {
    wanted.push_back(slice);
    out.emplace_back(name, slice.values);
  }
  BRAID_TRY(read(group, wanted));
  return out;
}

}  // namespace braid::inline checkpoint
