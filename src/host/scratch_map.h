// Read-only memory backed by a nameless file, for data that is used now and then: between uses its
// pages can leave memory, and come back from the file when they are touched. Thread-safe after
// create(); the file vanishes with the object or the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline host {

class ScratchMap {
 public:
  // Writes the pieces to a file without a name in `folder` ("" = the system's folder for temporary
  // files) and maps it. Errors name the folder.
  static Result<std::shared_ptr<const ScratchMap>> create(
      const std::string& folder, const std::vector<std::string_view>& pieces);
  ~ScratchMap();
  ScratchMap(const ScratchMap&) = delete;
  ScratchMap& operator=(const ScratchMap&) = delete;

  // Start of a piece, aligned to 64 bytes. REQUIRES: i is an index of create()'s list.
  const uint8_t* piece(size_t i) const { return data_ + begins_[i]; }
  size_t size_bytes() const { return size_bytes_; }

  // Lets the pages leave memory now; the data stays readable.
  void drop_pages() const;

 private:
  ScratchMap() = default;

  std::vector<size_t> begins_;
  const uint8_t* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace braid::inline host
