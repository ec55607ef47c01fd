#include "host/scratch_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.h"

namespace braid {
namespace {

constexpr size_t kAlign = 64;

Status scratch_failure(const std::string& folder, const char* what) {
  return io_error(cat(folder, ": cannot ", what, " a temporary file: ", std::strerror(errno),
                      "; TMPDIR names another folder"));
}

// A new file in `folder` whose name is gone already; -1 when it cannot be made.
int open_nameless(const std::string& folder) {
  std::string path = cat(folder, "/braid-XXXXXX");
  const int fd = ::mkstemp(path.data());
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

bool write_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool write_pieces(int fd, const std::vector<std::string_view>& pieces, std::vector<size_t>* begins,
                  size_t* size_bytes) {
  static const char kZeros[kAlign] = {};
  for (const std::string_view piece : pieces) {
    const size_t gap = (kAlign - *size_bytes % kAlign) % kAlign;
    if (!write_whole(fd, {kZeros, gap}) || !write_whole(fd, piece)) return false;
    begins->push_back(*size_bytes + gap);
    *size_bytes += gap + piece.size();
  }
  return true;
}

}  // namespace

Result<std::shared_ptr<const ScratchMap>> ScratchMap::create(
    const std::string& folder_or_default, const std::vector<std::string_view>& pieces) {
  std::error_code ignored;
  const std::string folder = folder_or_default.empty()
                                 ? std::filesystem::temp_directory_path(ignored).string()
                                 : folder_or_default;
  const int fd = open_nameless(folder);
  if (fd < 0) return scratch_failure(folder, "create");
  std::shared_ptr<ScratchMap> map(new ScratchMap());
  Status status;
  if (!write_pieces(fd, pieces, &map->begins_, &map->size_bytes_))
    status = scratch_failure(folder, "write");
  if (status.ok() && map->size_bytes_ > 0) {
    void* data = ::mmap(nullptr, map->size_bytes_, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      status = scratch_failure(folder, "map");
    } else {
      map->data_ = static_cast<const uint8_t*>(data);
    }
  }
  ::close(fd);
  if (!status.ok()) return status;
  return std::shared_ptr<const ScratchMap>(std::move(map));
}

ScratchMap::~ScratchMap() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

void ScratchMap::drop_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<uint8_t*>(data_), size_bytes_, MADV_DONTNEED);
}

}  // namespace braid
