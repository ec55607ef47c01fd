#include "checkpoint/shard_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "device/device_copy.h"
#include "host/sha256.h"

namespace braid::inline checkpoint {
namespace {

constexpr const char* kSlices = "slices";  // in the header's metadata

Status damaged_file(const std::string& path, const std::string& what) {
  return {Code::kDataLoss, cat(path, ": ", what)};
}

bool is_whole(const SavedSlice& slice) { return slice.values.sizes() == slice.shape; }

// "NAME", or "NAME[0:12, 4:8]" of a part.
std::string entry_name(const SavedSlice& slice) {
  if (is_whole(slice)) return slice.tensor;
  std::vector<std::string> ranges;
  for (size_t dim = 0; dim < slice.shape.size(); ++dim)
    ranges.push_back(cat(slice.offset[dim], ":",
                         slice.offset[dim] + slice.values.size(static_cast<int64_t>(dim))));
  return cat(slice.tensor, "[", join(ranges, ", "), "]");
}

using Hashes = std::vector<std::string>;

std::map<std::string, std::string> metadata_of(const std::vector<SavedSlice>& slices,
                                               const Hashes& hashes) {
  Json out = Json::object();
  for (size_t i = 0; i < slices.size(); ++i)
    out[entry_name(slices[i])] = {{"tensor", slices[i].tensor},
                                  {"shape", slices[i].shape},
                                  {"offset", slices[i].offset},
                                  {"sha256", hashes[i]}};
  return {{kSlices, out.dump()}};
}

std::string_view bytes_of(const at::Tensor& host) {
  return {static_cast<const char*>(host.const_data_ptr()), host.nbytes()};
}

// The rectangle lies within the tensor.
bool fits(const SavedSlice& slice) {
  const auto extent = slice.values.sizes();
  if (slice.offset.size() != slice.shape.size() || extent.size() != slice.shape.size())
    return false;
  for (size_t dim = 0; dim < extent.size(); ++dim)
    if (slice.offset[dim] < 0 || slice.offset[dim] + extent[dim] > slice.shape[dim]) return false;
  return true;
}

// A tensor that says type and sizes and has one number of memory.
at::Tensor sized_only(at::ScalarType type, const std::vector<int64_t>& sizes) {
  const at::Tensor one = at::empty({1}, at::TensorOptions().dtype(type));
  return one.as_strided(sizes, std::vector<int64_t>(sizes.size(), 0));
}

}  // namespace

// The header comes first in the file and has the hashes of what follows: their places are kept.
Result<ManifestEntry> write_shard(const std::string& path, const std::vector<SavedSlice>& slices) {
  std::vector<NewTensor> entries;
  for (const SavedSlice& slice : slices)
    entries.push_back({entry_name(slice), slice.values.scalar_type(), slice.values.sizes().vec()});
  Hashes hashes(slices.size(), std::string(64, '0'));
  BRAID_ASSIGN(SafetensorsWriter writer,
               SafetensorsWriter::create(path, std::move(entries), metadata_of(slices, hashes)));
  for (size_t i = 0; i < slices.size(); ++i) {
    const at::Tensor host = to_host(slices[i].values.detach()).contiguous();
    hashes[i] = sha256_hex(bytes_of(host));
    BRAID_TRY(writer.write(host));
  }
  BRAID_TRY(writer.replace(metadata_of(slices, hashes)));
  BRAID_TRY(writer.finish());
  BRAID_ASSIGN(const SafetensorsFile written, SafetensorsFile::open(path));
  return ManifestEntry{written.size_bytes(), sha256_hex(written.header()), true};
}

ShardFile::ShardFile(std::vector<SavedSlice> slices)
    : slices_(std::move(slices)), hashes_(slices_.size()) {}

Result<ShardFile> ShardFile::open(const std::string& path, const ManifestEntry& expected) {
  BRAID_TRY(check_size(path, expected));
  if (!expected.of_header) BRAID_TRY(check_file(path, expected));
  auto file = SafetensorsFile::open(path);
  if (!file.ok()) return Status(Code::kDataLoss, file.status().message());
  if (expected.of_header && sha256_hex(file->header()) != expected.sha256)
    return damaged_file(path, "its header does not match the SHA-256 in the manifest");
  ShardFile out;
  out.file_ = std::make_unique<SafetensorsFile>(std::move(file).value());
  const Status parsed = out.parse();
  return parsed.ok() ? Result<ShardFile>(std::move(out)) : damaged_file(path, parsed.message());
}

Status ShardFile::parse() {
  Json slices = Json::object();
  if (const auto found = file_->metadata().find(kSlices); found != file_->metadata().end()) {
    BRAID_ASSIGN(slices, parse_json(found->second, "slices"));
  }
  for (const auto& [name, entry] : file_->entries()) {
    BRAID_ASSIGN(const at::ScalarType type, file_->weight_type(name));
    SavedSlice slice(name, sized_only(type, entry.shape));
    std::string hash;  // of a checkpoint of format 1, whose files have one hash
    if (slices.contains(name)) {
      const Json& said = slices[name];
      BRAID_ASSIGN(slice.tensor, json_field<std::string>(said, "tensor"));
      BRAID_ASSIGN(slice.shape, json_field<std::vector<int64_t>>(said, "shape"));
      BRAID_ASSIGN(slice.offset, json_field<std::vector<int64_t>>(said, "offset"));
      BRAID_ASSIGN(hash, json_field<std::string>(said, "sha256"));
    }
    if (!fits(slice)) return invalid_input(cat("entry ", name, " leaves its tensor"));
    slices_.push_back(std::move(slice));
    names_.push_back(name);
    hashes_.push_back(std::move(hash));
  }
  return ok_status();
}

bool ShardFile::has(const std::string& tensor, const PlacedSlice& slice) const {
  return std::any_of(slices_.begin(), slices_.end(), [&](const SavedSlice& own) {
    return own.tensor == tensor && place_of(slice.rank, own) == slice;
  });
}

Result<at::Tensor> ShardFile::values(size_t entry) {
  if (!file_) return slices_[entry].values;
  const std::string_view bytes = file_->bytes(names_[entry]);
  if (!hashes_[entry].empty() && sha256_hex(bytes) != hashes_[entry])
    return damaged_file(file_->path(),
                        cat("tensor ", names_[entry], ": its content does not match its SHA-256"));
  hashes_[entry].clear();
  const at::Tensor& like = slices_[entry].values;
  if (bytes.empty()) return at::empty(like.sizes(), like.options());
  return at::from_blob(const_cast<char*>(bytes.data()), like.sizes(), like.options());
}

}  // namespace braid::inline checkpoint
