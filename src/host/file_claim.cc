#include "host/file_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"

namespace braid::inline host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kClaimMark = ".tmp.";

// Whether the name still leads to what was opened.
bool is_named(const FileHandle& file, const std::string& path) {
  struct stat held {
  }, named{};
  return ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

// NAME.tmp.NUMBER
bool is_temporary(const std::string& name) {
  const size_t at = name.rfind(kClaimMark);
  int64_t pid = 0;
  return at != std::string::npos && at > 0 &&
         parse_int(name.substr(at + std::string_view(kClaimMark).size()), &pid) && pid > 0;
}

}  // namespace

FileHandle claim_path(const std::string& path, int flags) {
  FileHandle file(::open(path.c_str(), flags | O_CLOEXEC));
  if (!file.is_open() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return FileHandle();
  return is_named(file, path) ? std::move(file) : FileHandle();
}

FileHandle create_claimed(const std::string& path) {
  while (true) {
    FileHandle file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file.is_open() || ::flock(file.get(), LOCK_EX) != 0 || is_named(file, path)) return file;
    // Somebody took it for a leftover before it was locked.
  }
}

std::string temporary_path(const std::string& path) { return cat(path, kClaimMark, ::getpid()); }

void remove_unclaimed_files(const std::string& folder) {
  const auto names = list_folder(folder);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    const std::string path = join_path(folder, (*names)[i]);
    if (!is_temporary((*names)[i]) || !is_regular_file(path)) continue;
    const FileHandle lock = claim_path(path, O_RDONLY);
    std::error_code error;
    if (lock.is_open()) fs::remove(path, error);
    if (error) log_warning(cat(path, ": cannot be removed: ", error.message()));
  }
}

}  // namespace braid::inline host
