#include "host/nameless_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {

Result<FileHandle> open_nameless_file(const std::string& folder_or_default) {
  std::error_code ignored;
  const std::string folder = folder_or_default.empty()
                                 ? std::filesystem::temp_directory_path(ignored).string()
                                 : folder_or_default;
  std::string path = cat(folder, "/braid-XXXXXX");
  FileHandle file(::mkstemp(path.data()));
  if (!file.is_open())
    return io_error(cat(folder, ": cannot create a temporary file: ", std::strerror(errno),
                        "; TMPDIR names another folder"));
  ::unlink(path.c_str());
  return file;
}

Status write_nameless_file(const FileHandle& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return io_error(cat("cannot write a temporary file: ", write_problem(errno),
                          "; TMPDIR names another folder"));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return ok_status();
}

}  // namespace braid::inline host
