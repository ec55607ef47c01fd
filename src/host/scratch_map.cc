#include "host/scratch_map.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "host/nameless_file.h"

namespace braid::inline host {
namespace {

constexpr size_t kAlign = 64;

Status write_pieces(const FileHandle& file, const std::vector<std::string_view>& pieces,
                    std::vector<size_t>* begins, size_t* size_bytes) {
  static const char kZeros[kAlign] = {};
  for (const std::string_view piece : pieces) {
    const size_t gap = (kAlign - *size_bytes % kAlign) % kAlign;
    BRAID_TRY(write_nameless_file(file, {kZeros, gap}));
    BRAID_TRY(write_nameless_file(file, piece));
    begins->push_back(*size_bytes + gap);
    *size_bytes += gap + piece.size();
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const ScratchMap>> ScratchMap::create(
    const std::string& folder, const std::vector<std::string_view>& pieces) {
  BRAID_ASSIGN(const FileHandle file, open_nameless_file(folder));
  std::shared_ptr<ScratchMap> map(new ScratchMap());
  BRAID_TRY(write_pieces(file, pieces, &map->begins_, &map->size_bytes_));
  if (map->size_bytes_ > 0) {
    void* data = ::mmap(nullptr, map->size_bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
    if (data == MAP_FAILED)
      return io_error(cat("cannot map a temporary file: ", std::strerror(errno)));
    map->data_ = static_cast<const uint8_t*>(data);
  }
  return std::shared_ptr<const ScratchMap>(std::move(map));
}

ScratchMap::~ScratchMap() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

void ScratchMap::drop_pages() const {
  if (data_ != nullptr) ::madvise(const_cast<uint8_t*>(data_), size_bytes_, MADV_DONTNEED);
}

}  // namespace braid::inline host
