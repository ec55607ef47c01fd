#include "host/staged_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "host/file.h"
#include "host/file_claim.h"

namespace braid::inline host {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".tmp-";
constexpr int kMostNames = 100;

void remove_unclaimed(const std::string& path) {
  const std::string parent = parent_folder(path);
  const std::string prefix = fs::path(path).filename().string() + kMark;
  const auto names = list_folder(parent);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string left = join_path(parent, name);
    if (name.rfind(prefix, 0) != 0 || !is_folder(left)) continue;
    const FileHandle lock = claim_path(left, O_RDONLY | O_DIRECTORY);
    if (!lock.is_open()) continue;
    std::error_code error;
    fs::remove_all(left, error);
    if (error) log_warning(cat(left, ": cannot be removed: ", error.message()));
  }
}

Status not_in_place(const std::string& path) {
  return io_error(cat(path, ": cannot be put in place: ", std::strerror(errno)));
}

}  // namespace

Status put_in_place(const std::string& temporary, const std::string& path) {
  int failed = ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE);
  if (failed != 0 && errno == EEXIST)
    failed = ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE);
  else if (failed != 0)  // a file system without renameat2
    return put_in_place_by_renames(temporary, path);
  if (failed != 0) return not_in_place(path);
  return sync_path(parent_folder(path));
}

Status put_in_place_by_renames(const std::string& temporary, const std::string& path) {
  const std::string earlier = temporary + ".earlier";
  const bool replaces = ::rename(path.c_str(), earlier.c_str()) == 0;
  if (!replaces && errno != ENOENT) return not_in_place(path);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Status status = not_in_place(path);
    if (replaces && ::rename(earlier.c_str(), path.c_str()) != 0)
      log_warning(cat("the earlier ", path, " is ", earlier, " now"));
    return status;
  }
  if (replaces && ::rename(earlier.c_str(), temporary.c_str()) != 0) return not_in_place(temporary);
  return sync_path(parent_folder(path));
}

Result<StagedFolder> StagedFolder::create(const std::string& path) {
  BRAID_TRY(make_folder(parent_folder(path)));
  remove_unclaimed(path);
  StagedFolder out;
  out.path_ = path;
  for (int i = 0; i < kMostNames; ++i) {
    const std::string name = cat(path, kMark, ::getpid(), i == 0 ? "" : cat("-", i));
    if (::mkdir(name.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return io_error(cat(name, ": cannot create folder: ", std::strerror(errno)));
    }
    out.lock_ = claim_path(name, O_RDONLY | O_DIRECTORY);
    if (!out.lock_.is_open()) continue;  // another process has just removed it as a leftover
    out.staging_ = name;
    return out;
  }
  return io_error(cat(path, kMark, ::getpid(), ": cannot be made: all such names are taken"));
}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : path_(std::move(other.path_)),
      staging_(std::exchange(other.staging_, "")),
      lock_(std::move(other.lock_)) {}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
}

Status StagedFolder::publish() {
  BRAID_TRY(sync_path(staging_));
  return put_in_place(staging_, path_);
}

}  // namespace braid::inline host
