#include "host/file_fingerprint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "host/process.h"
#include "host/sha256.h"

namespace braid::inline host {
namespace {

constexpr int64_t kPieces = 1024, kPieceBytes = int64_t{32} << 10;
constexpr int64_t kSmallTensorBytes = int64_t{1} << 20, kLargestHeader = int64_t{100} << 20;
constexpr int64_t kWholeWeightsBytes = int64_t{1} << 20, kWholeTensorBytes = int64_t{64} << 10;
constexpr int64_t kTensorPieces = 4, kTensorPieceBytes = int64_t{4} << 10;
constexpr size_t kShownDigits = 16;

// Adds bytes of the file to the sum; false where they cannot be read.
bool add_range(int file, int64_t begin, int64_t end, Sha256* sum) {
  std::string buffer(static_cast<size_t>(std::min(end - begin, kPieceBytes)), '\0');
  while (begin < end) {
    const auto wanted = std::min<int64_t>(end - begin, static_cast<int64_t>(buffer.size()));
    const ssize_t size = ::pread(file, buffer.data(), static_cast<size_t>(wanted), begin);
    if (size <= 0) return false;
    sum->add({buffer.data(), static_cast<size_t>(size)});
    begin += size;
  }
  return true;
}

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// So many pieces of a range that are spread evenly over it, the first and the last among them.
std::vector<Range> pieces_of(const Range& range, int64_t count, int64_t piece_bytes) {
  const int64_t last = range.end - piece_bytes, apart = (last - range.begin) / (count - 1);
  std::vector<Range> out;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i == count - 1 ? last : range.begin + apart * i;
    out.push_back({begin, begin + piece_bytes});
  }
  return out;
}

bool add_ranges(int file, const std::vector<Range>& ranges, Sha256* sum) {
  return std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    return add_range(file, range.begin, range.end, sum);
  });
}

// The header of a .safetensors file (its length in 8 bytes, then JSON), then its tensors; nothing
// where it is none, which loading will say.
std::vector<Range> header_and_tensors(int file, int64_t bytes) {
  uint64_t length = 0;
  if (::pread(file, &length, sizeof length, 0) != sizeof length) return {};
  const auto begin = static_cast<int64_t>(sizeof length);
  if (length > static_cast<uint64_t>(std::min(bytes - begin, kLargestHeader))) return {};
  std::string text(length, '\0');
  if (::pread(file, text.data(), length, begin) != static_cast<ssize_t>(length)) return {};
  const auto header = parse_json(text, "");
  if (!header.ok() || !header->is_object()) return {};
  const int64_t data = begin + static_cast<int64_t>(length);
  std::vector<Range> out = {{0, data}};
  for (const auto& item : header->items()) {
    const auto offsets = item.value().find("data_offsets");
    if (!item.value().is_object() || offsets == item.value().end() || offsets->size() != 2)
      continue;
    if (!(*offsets)[0].is_number_integer() || !(*offsets)[1].is_number_integer()) continue;
    const auto from = (*offsets)[0].get<int64_t>(), to = (*offsets)[1].get<int64_t>();
    if (from >= 0 && from < to && to <= bytes - data) out.push_back({data + from, data + to});
  }
  return out;
}

// What file_fingerprint() looks at of a large file.
std::vector<Range> parts_of_large(const std::string& path, int file, int64_t bytes) {
  std::vector<Range> out = pieces_of({0, bytes}, kPieces, kPieceBytes);
  if (!path.ends_with(".safetensors")) return out;
  const std::vector<Range> tensors = header_and_tensors(file, bytes);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (i == 0 || tensors[i].size() <= kSmallTensorBytes) out.push_back(tensors[i]);
  return out;
}

// Likewise weights_file_fingerprint() of a tensor.
std::vector<Range> tensor_ranges(const Range& tensor) {
  if (tensor.size() <= kWholeTensorBytes) return {tensor};
  return pieces_of(tensor, kTensorPieces, kTensorPieceBytes);
}

std::vector<Range> parts_of_weights(const std::string&, int file, int64_t bytes) {
  std::vector<Range> out;
  for (const Range& part : header_and_tensors(file, bytes)) {
    const bool header = out.empty();  // it comes first
    const auto looked_at = header ? std::vector<Range>{part} : tensor_ranges(part);
    out.insert(out.end(), looked_at.begin(), looked_at.end());
  }
  return out;
}

using PartsOfFile = std::vector<Range> (*)(const std::string& path, int file, int64_t bytes);

Result<std::string> fingerprint(const std::string& path, int64_t whole_bytes,
                                PartsOfFile parts_of) {
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (!file.is_open() || ::fstat(file.get(), &found) != 0)
    return io_error(cat(path, ": ", std::strerror(errno)));
  const int64_t bytes = found.st_size;
  const bool whole = bytes <= whole_bytes;
  Sha256 sum;
  if (!whole) sum.add(cat(bytes, "\n"));
  const auto parts = whole ? std::vector<Range>{{0, bytes}} : parts_of(path, file.get(), bytes);
  if (!add_ranges(file.get(), parts, &sum))
    return io_error(cat(path, ": cannot be read, or became shorter meanwhile"));
  return cat(bytes, " bytes with SHA-256 ", sum.hex().substr(0, kShownDigits));
}

}  // namespace

Result<std::string> file_fingerprint(const std::string& path) {
  return fingerprint(path, kWholeFileBytes, parts_of_large);
}

Result<std::string> weights_file_fingerprint(const std::string& path) {
  return fingerprint(path, kWholeWeightsBytes, parts_of_weights);
}

std::vector<std::string_view> parts_of_tensor(std::string_view bytes) {
  std::vector<std::string_view> out;
  for (const Range& range : tensor_ranges({0, static_cast<int64_t>(bytes.size())}))
    out.push_back(
        bytes.substr(static_cast<size_t>(range.begin), static_cast<size_t>(range.size())));
  return out;
}

}  // namespace braid::inline host
