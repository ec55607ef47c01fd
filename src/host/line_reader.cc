#include "host/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {
namespace {

constexpr size_t kScanBytes = 1 << 18;  // of a pass over all lines
constexpr size_t kLineBytes = 1 << 12;  // of reading one line; longer ones take several

Status line_failure(const std::string& path, const char* what) {
  const int error = errno;
  const std::string message = cat(path, ": cannot ", what, ": ", std::strerror(error));
  return error == ENOENT ? not_found(message) : io_error(message);
}

}  // namespace

Result<LineReader> LineReader::open(const std::string& path) {
  LineReader out;
  out.name_ = path;
  if (path != "-") {
    FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) return line_failure(path, "open");
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return line_failure(path, "inspect");
    if (S_ISDIR(info.st_mode)) return invalid_input(cat(path, ": is a folder, not a file"));
    if (S_ISREG(info.st_mode)) {
      out.file_ = std::move(file);
      return out;
    }
  }
  BRAID_ASSIGN(out.text_, read_file(path));
  return out;
}

LineReader LineReader::of_file(FileHandle file, std::string name) {
  LineReader out;
  out.file_ = std::move(file);
  out.name_ = std::move(name);
  return out;
}

LineReader LineReader::of_text(std::string text, std::string name) {
  LineReader out;
  out.text_ = std::move(text);
  out.name_ = std::move(name);
  return out;
}

// Bytes from a place on; fewer than `capacity` only at the end of the text.
Result<size_t> LineReader::read_at(int64_t begin_byte, char* out, size_t capacity) const {
  if (!file_.is_open()) {
    const size_t begin = std::min(static_cast<size_t>(begin_byte), text_.size());
    return text_.copy(out, capacity, begin);
  }
  size_t filled = 0;
  while (filled < capacity) {
    const ssize_t count = ::pread(file_.get(), out + filled, capacity - filled,
                                  begin_byte + static_cast<int64_t>(filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return line_failure(name_, "read");
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  return filled;
}

Status LineReader::for_each(const Visit& visit) const {
  std::string buffer(kScanBytes, '\0');
  int64_t begin = 0;   // place of the buffer's first byte, where a line begins
  size_t filled = 0;   // bytes of it that are read
  bool ended = false;  // there are no more
  while (!ended) {
    if (filled == buffer.size()) buffer.resize(2 * buffer.size());  // a line longer than all of it
    const size_t wanted = buffer.size() - filled;
    BRAID_ASSIGN(const size_t count,
                 read_at(begin + static_cast<int64_t>(filled), buffer.data() + filled, wanted));
    ended = count < wanted;
    filled += count;
    const std::string_view text(buffer.data(), filled);
    size_t used = 0;
    while (used < filled) {
      const size_t end = text.find('\n', used);
      if (end == std::string_view::npos && !ended) break;
      const std::string_view line = text.substr(used, std::min(end, filled) - used);
      BRAID_TRY(visit(line, begin + static_cast<int64_t>(used)));
      used += line.size() + 1;
    }
    used = std::min(used, filled);
    buffer.erase(0, used);
    buffer.resize(std::max(buffer.size(), kScanBytes));
    begin += static_cast<int64_t>(used);
    filled -= used;
  }
  return ok_status();
}

Result<std::string> LineReader::line_at(int64_t begin_byte) const {
  std::string line;
  char block[kLineBytes];
  while (true) {
    const int64_t place = begin_byte + static_cast<int64_t>(line.size());
    BRAID_ASSIGN(const size_t count, read_at(place, block, sizeof block));
    const std::string_view text(block, count);
    const size_t end = text.find('\n');
    line.append(text.substr(0, end));
    if (end != std::string_view::npos || count < sizeof block) return line;
  }
}

}  // namespace braid::inline host
