#include "checkpoint/writing_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/folder_names.h"
#include "host/file.h"
#include "host/file_claim.h"
#include "host/sha256.h"

namespace braid::inline checkpoint {
namespace {

constexpr const char* kWritingPrefix = ".writing-";
constexpr const char* kJobFile = ".job";  // the name of no file of a checkpoint
constexpr size_t kHashDigits = 8;

std::string suffix_of(const std::string& job) {
  return "." + sha256_hex(job).substr(0, kHashDigits);
}

// Whether nobody writes to it any more; says what becomes of it. One without the job's file was
// about to become a checkpoint, or is of a version that had none.
bool is_left(const std::string& writing) {
  const std::string file = join_path(writing, kJobFile);
  const auto job = read_file(file);
  const std::string whose = job.ok() ? cat("job '", *job, "'") : std::string("a job before");
  if (job.ok() && !claim_path(file, O_RDWR).is_open()) {
    log_warning(cat(writing, ": stays, a process of ", whose, " still writes to it"));
    return false;
  }
  log_info(cat("removing ", writing, ", left by ", whose));
  return true;
}

}  // namespace

std::string writing_path(const SavePlace& place, const SavePoint& at) {
  return join_path(place.folder, kWritingPrefix + folder_name(at) + suffix_of(place.job));
}

Status make_writing(const SavePlace& place, const SavePoint& at) {
  const std::string writing = writing_path(place, at);
  BRAID_TRY(make_folder(writing));
  return append_file(join_path(writing, kJobFile), place.job);  // read by the living alone: no sync
}

FileHandle hold_writing(const std::string& writing) {
  FileHandle file(::open(join_path(writing, kJobFile).c_str(), O_RDWR | O_CLOEXEC));
  if (file.is_open()) (void)::flock(file.get(), LOCK_SH);  // nothing on a file system without locks
  return file;
}

void release_writing(const std::string& writing) {
  std::error_code ignored;
  std::filesystem::remove(join_path(writing, kJobFile), ignored);
}

Status remove_leftovers(const SavePlace& place) {
  BRAID_ASSIGN(const std::vector<std::string> names, list_folder(place.folder));
  for (const std::string& name : names) {
    const std::string path = join_path(place.folder, name);
    const bool written = name.rfind(kWritingPrefix, 0) == 0;
    const bool own = written && name.ends_with(suffix_of(place.job));
    if (is_removed(name) || own || (written && is_left(path))) remove_folder(path);
  }
  return ok_status();
}

}  // namespace braid::inline checkpoint
