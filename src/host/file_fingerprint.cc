#include "host/file_fingerprint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "host/process.h"
#include "host/sha256.h"

namespace braid {
namespace {

constexpr int64_t kPieces = 1024, kPieceBytes = int64_t{32} << 10;
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
  }
  if (!read) return io_error(cat(path, ": cannot be read, or became shorter meanwhile"));
  return cat(bytes, " bytes with SHA-256 ", sum.hex().substr(0, kShownDigits));
}

}  // namespace braid
