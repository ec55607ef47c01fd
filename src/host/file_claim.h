// Files and folders that a living process claims by a lock on them, on whatever machine it runs:
// what nobody claims any more was left by a process that died. Functions are thread-safe.
#pragma once

#include <string>

#include "base/status.h"
#include "host/process.h"

namespace braid::inline host {

// The file in a folder that a process which writes there holds the lock of.
inline constexpr const char* kClaimFile = ".lock";

// The lock of a file or folder, held until the handle closes; closed where somebody else holds it,
// where `path` is gone, and on a file system without locks. `flags`: of open(2), beside O_CLOEXEC.
FileHandle claim_path(const std::string& path, int flags);

// Creates an empty file and claims it, so that remove_unclaimed_files() spares it; on a file system
// without locks it is created alone. Closed, with errno, where it cannot be created.
FileHandle create_claimed(const std::string& path);

// The temporary beside `path` of write_file_atomic() in this process.
std::string temporary_path(const std::string& path);

// Removes from a folder, but not from those in it, the temporaries of write_file_atomic() whose
// writers died. What cannot be removed is a warning.
void remove_unclaimed_files(const std::string& folder);

}  // namespace braid::inline host
