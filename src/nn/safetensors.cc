#include "nn/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/json.h"
#include "device/device_copy.h"
#include "host/progress.h"

namespace braid::inline nn {

namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation

std::atomic<int64_t> bytes_read = 0;

struct DtypeName {
  const char* name;
  int64_t bytes;
  std::optional<at::ScalarType> weight_type;  // of dtypes that weights may have
};

const DtypeName* find_dtype(const std::string& name) {
  static const DtypeName kDtypes[] = {{"F32", 4, at::kFloat}, {"BF16", 2, at::kBFloat16},
                                      {"F16", 2, at::kHalf},  {"F64", 8, {}},
                                      {"I64", 8, {}},         {"I32", 4, {}},
                                      {"I16", 2, {}},         {"I8", 1, {}},
                                      {"U64", 8, {}},         {"U32", 4, {}},
                                      {"U16", 2, {}},         {"U8", 1, {}},
                                      {"BOOL", 1, {}},        {"F8_E4M3", 1, {}},
                                      {"F8_E5M2", 1, {}}};
  for (const DtypeName& dtype : kDtypes)
    if (name == dtype.name) return &dtype;
  return nullptr;
}

const char* dtype_name(at::ScalarType type) {
  if (type == at::kFloat) return "F32";
  if (type == at::kBFloat16) return "BF16";
  BRAID_CHECK(type == at::kHalf, "weights are f32, bf16 or f16");
  return "F16";
}

// The product of the sizes times the element size; nothing when a size is negative or it overflows.
std::optional<int64_t> byte_size(const std::vector<int64_t>& shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (const int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

Result<std::vector<int64_t>> integer_list(const Json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array())
    return invalid_input(cat("corrupt header: '", key, "' is not a list"));
  std::vector<int64_t> list;
  for (const Json& item : *found) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0)
      return invalid_input(
          cat("corrupt header: '", key, "' holds ", item.dump(), ", not a whole number"));
    list.push_back(item.get<int64_t>());
  }
  return list;
}

Result<TensorEntry> parse_entry(const Json& json) {
  if (!json.is_object()) return invalid_input("corrupt header: the entry is not an object");
  TensorEntry entry;
  BRAID_ASSIGN(entry.dtype, json_field<std::string>(json, "dtype").at("corrupt header"));
  const DtypeName* dtype = find_dtype(entry.dtype);
  if (dtype == nullptr) return invalid_input(cat("unknown dtype '", entry.dtype, "'"));
  BRAID_ASSIGN(entry.shape, integer_list(json, "shape"));
  BRAID_ASSIGN(const std::vector<int64_t> range, integer_list(json, "data_offsets"));
  if (range.size() != 2 || range[0] > range[1])
    return invalid_input("corrupt header: 'data_offsets' is not a [begin, end] range");
  entry.begin_byte = range[0];
  entry.end_byte = range[1];
  const std::optional<int64_t> bytes = byte_size(entry.shape, dtype->bytes);
  if (!bytes || *bytes != entry.end_byte - entry.begin_byte)
    return invalid_input(cat("corrupt header: its shape and dtype need ",
                             bytes ? std::to_string(*bytes) : "too many", " bytes, its range has ",
                             entry.end_byte - entry.begin_byte));
  return entry;
}

}  // namespace

Status SafetensorsFile::parse_header() {
  if (map_.size_bytes() < kLengthBytes)
    return invalid_input(cat("truncated: ", map_.size_bytes(), " bytes, less than a header"));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, map_.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes)
    return invalid_input(cat("corrupt header: its length is said to be ", header_bytes, " bytes"));
  if (header_bytes > map_.size_bytes() - kLengthBytes)
    return invalid_input(cat("truncated: the header needs ", header_bytes, " bytes, the file has ",
                             map_.size_bytes()));
  data_offset_ = static_cast<int64_t>(kLengthBytes + header_bytes);
  bytes_read += data_offset_;
  BRAID_ASSIGN(const Json header,
               parse_json(map_.text().substr(kLengthBytes, header_bytes), "corrupt header"));
  if (!header.is_object()) return invalid_input("corrupt header: not a JSON object");
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") {
      if (item.value().is_object())
        for (const auto& [name, text] : item.value().items())
          if (text.is_string()) metadata_[name] = text.get<std::string>();
      continue;
    }
    BRAID_ASSIGN(entries_[item.key()], parse_entry(item.value()).at(cat("tensor ", item.key())));
  }
  return ok_status();
}

Status SafetensorsFile::check_ranges() const {
  std::vector<std::pair<const std::string*, const TensorEntry*>> order;
  for (const auto& item : entries_) order.emplace_back(&item.first, &item.second);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.second->begin_byte, a.second->end_byte) <
           std::make_pair(b.second->begin_byte, b.second->end_byte);
  });
  const auto data_bytes = static_cast<int64_t>(map_.size_bytes()) - data_offset_;
  int64_t expected = 0;
  for (const auto& item : order) {
    const int64_t begin = item.second->begin_byte;
    if (begin != expected)
      return invalid_input(cat("tensor ", *item.first, ": corrupt header: ",
                               begin < expected ? "overlaps the tensor before it"
                                                : "leaves a gap after the tensor before it"));
    expected = item.second->end_byte;
    if (expected > data_bytes)
      return invalid_input(cat("tensor ", *item.first, ": truncated: it ends at byte ", expected,
                               " of the data, the file has ", data_bytes));
  }
  if (expected != data_bytes)
    return invalid_input(cat("corrupt: ", data_bytes - expected, " bytes after the last tensor"));
  return ok_status();
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  BRAID_ASSIGN(MappedFile map, MappedFile::open(path));
  SafetensorsFile file(path, std::move(map));
  BRAID_TRY(file.parse_header().at(path));
  BRAID_TRY(file.check_ranges().at(path));
  return file;
}

int64_t safetensors_bytes_read() { return bytes_read; }

Result<at::ScalarType> SafetensorsFile::weight_type(const std::string& name) const {
  const TensorEntry& entry = entries_.at(name);
  const DtypeName* dtype = find_dtype(entry.dtype);
  if (dtype->weight_type) return *dtype->weight_type;
  return invalid_input(cat(path_, ": tensor ", name, ": dtype ", entry.dtype,
                           " is not a weight dtype; convert it to F32, BF16 or F16"));
}

Result<at::Tensor> SafetensorsFile::read_block(const std::string& name, const IndexRange& rows,
                                               const IndexRange& columns) const {
  BRAID_ASSIGN(const at::ScalarType type, weight_type(name));
  const TensorEntry& entry = entries_.at(name);
  const bool matrix = entry.shape.size() > 1;
  std::vector<int64_t> shape = entry.shape;
  shape[0] = rows.size();
  if (matrix) shape[1] = columns.size();
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(type));
  if (tensor.numel() == 0) return tensor;
  const int64_t row_bytes = (entry.end_byte - entry.begin_byte) / entry.shape[0];
  const int64_t unit_bytes = matrix ? row_bytes / entry.shape[1] : row_bytes;
  const int64_t wanted = matrix ? columns.size() * unit_bytes : row_bytes;
  // What lies in one piece in the file: all of it, or what is of one row.
  const int64_t runs = wanted == row_bytes ? 1 : rows.size();
  const auto run_bytes = static_cast<int64_t>(tensor.nbytes()) / runs;
  const uint8_t* from = map_.data() + data_offset_ + entry.begin_byte + rows.begin * row_bytes +
                        (matrix ? columns.begin * unit_bytes : 0);
  auto* to = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (int64_t run = 0; run < runs; ++run)
    std::memcpy(to + run * run_bytes, from + run * row_bytes, static_cast<size_t>(run_bytes));
  bytes_read += static_cast<int64_t>(tensor.nbytes());
  note_progress();
  return tensor;
}

std::string_view SafetensorsFile::bytes(const std::string& name) const {
  const TensorEntry& entry = entries_.at(name);
  bytes_read += entry.end_byte - entry.begin_byte;
  return map_.text().substr(data_offset_ + entry.begin_byte, entry.end_byte - entry.begin_byte);
}

Result<at::Tensor> SafetensorsFile::read(const std::string& name) const {
  BRAID_ASSIGN(const at::ScalarType type, weight_type(name));
  const TensorEntry& entry = entries_.at(name);
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(type));
  std::memcpy(tensor.mutable_data_ptr(), map_.data() + data_offset_ + entry.begin_byte,
              static_cast<size_t>(entry.end_byte - entry.begin_byte));
  bytes_read += entry.end_byte - entry.begin_byte;
  note_progress();
  return tensor;
}

Status WeightFolder::add_file(const std::string& path) {
  BRAID_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
  for (const auto& item : file.entries()) {
    const auto added = file_of_.emplace(item.first, files_.size());
    if (!added.second)
      return invalid_input(
          cat(path, ": tensor ", item.first, " is also in ", files_[added.first->second].path()));
  }
  files_.push_back(std::move(file));
  return ok_status();
}

Status WeightFolder::check_index(const std::map<std::string, std::string>& weight_map,
                                 const std::string& folder) const {
  for (const auto& item : weight_map) {
    const std::string path = join_path(folder, item.second);
    if (!has(item.first) || file(item.first).path() != path)
      return invalid_input(cat(path, ": tensor ", item.first, " is missing though the index of ",
                               folder, " places it there"));
  }
  for (const auto& item : file_of_)
    if (weight_map.count(item.first) == 0)
      return invalid_input(cat(files_[item.second].path(), ": tensor ", item.first,
                               " is not in model.safetensors.index.json"));
  return ok_status();
}

Result<WeightFolder> WeightFolder::open(const std::string& folder) {
  WeightFolder weights;
  const std::string single = join_path(folder, "model.safetensors");
  if (path_exists(single)) {
    BRAID_TRY(weights.add_file(single));
    return weights;
  }
  const std::string index_path = join_path(folder, "model.safetensors.index.json");
  if (!path_exists(index_path))
    return not_found(cat(folder,
                         ": neither model.safetensors nor model.safetensors.index.json; "
                         "other formats must be converted to safetensors first"));
  BRAID_ASSIGN(const std::string text, read_file(index_path));
  BRAID_ASSIGN(const Json index, parse_json(text, index_path));
  using WeightMap = std::map<std::string, std::string>;
  BRAID_ASSIGN(const WeightMap weight_map,
               json_field<WeightMap>(index, "weight_map").at(index_path));
  std::map<std::string, bool> added;
  for (const auto& item : weight_map) {
    if (item.second.find('/') != std::string::npos)
      return invalid_input(
          cat(index_path, ": shard '", item.second, "' must be a file of the same folder"));
    if (added.emplace(item.second, true).second)
      BRAID_TRY(weights.add_file(join_path(folder, item.second)));
  }
  BRAID_TRY(weights.check_index(weight_map, folder));
  return weights;
}

std::vector<std::string> WeightFolder::names() const {
  std::vector<std::string> names;
  for (const auto& item : file_of_) names.push_back(item.first);
  return names;
}

std::vector<std::string> WeightFolder::paths() const {
  std::vector<std::string> paths;
  for (const SafetensorsFile& file : files_) paths.push_back(file.path());
  return paths;
}

namespace {

// Length and JSON header; padded with blanks so that the data starts at a multiple of 8 bytes.
std::string header_bytes(const std::vector<NewTensor>& tensors,
                         const SafetensorsWriter::Metadata& metadata) {
  OrderedJson header = {{"__metadata__", {{"format", "pt"}}}};
  for (const auto& [name, text] : metadata) header["__metadata__"][name] = text;
  int64_t offset = 0;
  for (const NewTensor& tensor : tensors) {
    const DtypeName* dtype = find_dtype(dtype_name(tensor.type));
    const int64_t end = offset + byte_size(tensor.shape, dtype->bytes).value_or(0);
    header[tensor.name] = {
        {"dtype", dtype->name}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), kLengthBytes);
  return bytes + text;
}

bool write_bytes(std::FILE* file, const void* data, size_t size) {
  return size == 0 || std::fwrite(data, 1, size, file) == size;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                    std::vector<NewTensor> tensors,
                                                    Metadata metadata) {
  SafetensorsWriter out;
  out.path_ = path;
  out.file_ = std::fopen(path.c_str(), "wb");
  if (out.file_ == nullptr)
    return io_error(cat(path, ": cannot be created: ", std::strerror(errno)));
  const std::string header = header_bytes(tensors, metadata);
  out.tensors_ = std::move(tensors);
  out.header_bytes_ = header.size();
  if (!write_bytes(out.file_, header.data(), header.size())) return out.failed();
  return out;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      tensors_(std::move(other.tensors_)),
      next_(other.next_),
      header_bytes_(other.header_bytes_) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ != nullptr) (void)std::fclose(file_);
}

Status SafetensorsWriter::failed() const {
  return io_error(cat(path_, ": writing failed: ", write_problem(errno)));
}

Status SafetensorsWriter::write(const at::Tensor& values) {
  BRAID_CHECK(next_ < tensors_.size() && values.sizes() == tensors_[next_].shape &&
                  values.scalar_type() == tensors_[next_].type,
              cat(path_, ": another tensor comes next"));
  ++next_;
  const at::Tensor flat = to_host(values.detach()).contiguous();
  if (!write_bytes(file_, flat.const_data_ptr(), flat.nbytes())) return failed();
  note_progress();
  return ok_status();
}

Status SafetensorsWriter::replace(const Metadata& metadata) {
  const std::string header = header_bytes(tensors_, metadata);
  BRAID_CHECK(header.size() == header_bytes_, cat(path_, ": the header has another size"));
  if (std::fseek(file_, 0, SEEK_SET) != 0 || !write_bytes(file_, header.data(), header.size()))
    return failed();
  return ok_status();
}

Status SafetensorsWriter::finish() {
  BRAID_CHECK(next_ == tensors_.size(), cat(path_, ": tensors are missing"));
  if (std::fclose(std::exchange(file_, nullptr)) != 0) return failed();
  return sync_path(path_);
}

Status write_safetensors(const std::string& path,
                         const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<NewTensor> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  BRAID_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, std::move(entries)));
  for (const auto& [name, tensor] : tensors) BRAID_TRY(writer.write(tensor));
  return writer.finish();
}

}  // namespace braid::inline nn
