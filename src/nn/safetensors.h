// Reading and writing of safetensors files: an 8-byte header length, a JSON header, then the raw
// tensors. A file is validated whole when it is opened, so later reads cannot leave the map.
// Readers are immutable after open() and thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "host/file.h"
#include "nn/index_range.h"

namespace braid::inline nn {

struct TensorEntry {
  std::string dtype;           // "F32", "BF16", ...
  std::vector<int64_t> shape;  // as stored
  int64_t begin_byte = 0;      // range within the data part of the file
  int64_t end_byte = 0;
};

class SafetensorsFile {
 public:
  // Maps the file and checks header length, header JSON, dtypes, shapes against byte ranges, gaps,
  // overlaps and the file's end.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, TensorEntry>& entries() const { return entries_; }
  // The texts of the header that are of no tensor, by name.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Length and header as they stand in the file, and the bytes of one tensor. REQUIRES: entries()
  // has the name.
  int64_t size_bytes() const { return static_cast<int64_t>(map_.size_bytes()); }
  std::string_view header() const { return map_.text().substr(0, data_offset_); }
  std::string_view bytes(const std::string& name) const;
  // The type of one, if weights may have it.
  Result<at::ScalarType> weight_type(const std::string& name) const;

  // A copy of one tensor in its stored dtype (F32, BF16 or F16). REQUIRES: entries() has the name.
  Result<at::Tensor> read(const std::string& name) const;
  // A copy of some rows, and of these some columns (of a vector one: its rows are its numbers); no
  // other bytes are touched. REQUIRES: the tensor has the name, the rows and the columns.
  Result<at::Tensor> read_block(const std::string& name, const IndexRange& rows,
                                const IndexRange& columns) const;

 private:
  SafetensorsFile(std::string path, MappedFile map)
      : path_(std::move(path)), map_(std::move(map)) {}
  Status parse_header();
  Status check_ranges() const;

  std::string path_;
  MappedFile map_;
  int64_t data_offset_ = 0;
  std::map<std::string, TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// Bytes of headers and tensors that this process has taken from all such files so far.
int64_t safetensors_bytes_read();

// The weights of a Hugging Face folder: model.safetensors or the shards of
// model.safetensors.index.json.
class WeightFolder {
 public:
  static Result<WeightFolder> open(const std::string& folder);

  // Names in alphabetical order.
  std::vector<std::string> names() const;
  // Of the files with tensors.
  std::vector<std::string> paths() const;
  bool has(const std::string& name) const { return file_of_.count(name) > 0; }
  // REQUIRES for the three: has(name).
  const SafetensorsFile& file(const std::string& name) const { return files_[file_of_.at(name)]; }
  const TensorEntry& entry(const std::string& name) const { return file(name).entries().at(name); }
  Result<at::Tensor> read(const std::string& name) const { return file(name).read(name); }

 private:
  Status add_file(const std::string& path);
  Status check_index(const std::map<std::string, std::string>& weight_map,
                     const std::string& folder) const;

  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> file_of_;
};

// The files that load_model() reads of a folder: of weights, adapters and the base below them, and
// the JSON files that say what they are.
Result<std::vector<std::string>> model_files(const std::string& folder);

// A tensor of a file that is to be written.
struct NewTensor {
  std::string name;
  at::ScalarType type = at::kFloat;  // f32, bf16 or f16
  std::vector<int64_t> shape;
};

// A file that is written tensor by tensor. Not thread-safe.
class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;
  // `metadata`: further texts of the header.
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<NewTensor> tensors,
                                          Metadata metadata = {});
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;
  ~SafetensorsWriter();

  // The values of the next one, on any device. REQUIRES: they have its type and shape.
  Status write(const at::Tensor& values);
  // Other texts in the header; call before finish(). REQUIRES: they take as many bytes.
  Status replace(const Metadata& metadata);
  // After the last one: syncs the file.
  Status finish();

 private:
  SafetensorsWriter() = default;
  Status failed() const;

  std::string path_;
  std::FILE* file_ = nullptr;
  std::vector<NewTensor> tensors_;
  size_t next_ = 0, header_bytes_ = 0;
};

// Writes tensors (f32, bf16 or f16, any device) in the given order and syncs the file.
Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace braid::inline nn
