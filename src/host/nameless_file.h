// Files without a name, which vanish with their handle or the process. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "host/process.h"

namespace braid::inline host {

// A new empty file in `folder` ("" = the system's folder for temporary files, which TMPDIR names).
Result<FileHandle> open_nameless_file(const std::string& folder);

// Appends bytes.
Status write_nameless_file(const FileHandle& file, std::string_view bytes);

}  // namespace braid::inline host
