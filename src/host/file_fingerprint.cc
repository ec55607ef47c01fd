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
};

// The header of a .safetensors file (its length in 8 bytes, then JSON) and its tensors up to
// kSmallTensorBytes; nothing where it is none, which loading will say.
std::vector<Range> header_and_small_tensors(int file, int64_t bytes) {
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
    if (from >= 0 && from < to && to <= bytes - data && to - from <= kSmallTensorBytes)
      out.push_back({data + from, data + to});
  }
  return out;
}

}  // namespace

Result<std::string> file_fingerprint(const std::string& path) {
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (!file.is_open() || ::fstat(file.get(), &found) != 0)
    return io_error(cat(path, ": ", std::strerror(errno)));
  const int64_t bytes = found.st_size;
  Sha256 sum;
  bool read = true;
  if (bytes <= kWholeFileBytes) {
    read = add_range(file.get(), 0, bytes, &sum);
  } else {
    sum.add(cat(bytes, "\n"));
    for (int64_t i = 0; i < kPieces && read; ++i) {
      const int64_t begin = (bytes - kPieceBytes) / (kPieces - 1) * i;
      const int64_t last = bytes - kPieceBytes;
      const int64_t from = i == kPieces - 1 ? last : begin;
      read = add_range(file.get(), from, from + kPieceBytes, &sum);
    }
    if (path.ends_with(".safetensors"))
      for (const Range& range : header_and_small_tensors(file.get(), bytes))
        read = read && add_range(file.get(), range.begin, range.end, &sum);
  }
  if (!read) return io_error(cat(path, ": cannot be read, or became shorter meanwhile"));
  return cat(bytes, " bytes with SHA-256 ", sum.hex().substr(0, kShownDigits));
}

}  // namespace braid::inline host
