// Files: whole reads, memory maps, durable atomic writes. Functions are thread-safe; errors name
// the path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline host {

// The whole content of a file; "-" reads standard input.
Result<std::string> read_file(const std::string& path);

// Reads files for parsers that take text.
std::function<Result<std::string>(const std::string&)> file_reader();

// Writes to a temporary beside path, syncs it and renames it over path: readers see the old or the
// new content. A device or a pipe is written to as it is.
Status write_file_atomic(const std::string& path, std::string_view contents);

// Appends to a file, which is made where there is none. Where that fails half-way, the file is as
// it was before.
Status append_file(const std::string& path, std::string_view contents);

// What an errno of a failed write means, with a remedy where there is one.
std::string write_problem(int error);

// Creates a folder and its parents; an existing folder is fine.
Status make_folder(const std::string& path);

// Names (not paths) of a folder's entries, sorted.
Result<std::vector<std::string>> list_folder(const std::string& path);

bool path_exists(const std::string& path);
bool is_folder(const std::string& path);
// Or a link to one; no pipe, device or folder.
bool is_regular_file(const std::string& path);

// Flushes a file or folder to the disk.
Status sync_path(const std::string& path);

// Bytes that an ordinary user may still write on the file system of path.
Result<int64_t> free_disk_bytes(const std::string& path);

// "a/b" from "a" and "b"; an absolute b stays as it is.
std::string join_path(std::string_view folder, std::string_view name);

// "a/b" of "a/b/c"; "." for a bare name.
std::string parent_folder(const std::string& path);

// A read-only memory map of a whole file; movable, unmapped on destruction. An empty file has size
// 0.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const uint8_t* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_bytes_}; }

 private:
  MappedFile() = default;
  const uint8_t* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace braid::inline host
