// Whether files lie on a disk that several machines have in common. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace braid::inline host {

// Whether this number of a file system, as statfs(2) gives it, is that of one over a network.
bool is_network_file_system(int64_t number);

// Whether a file or folder lies on such a one.
Result<bool> is_on_network(const std::string& path);

}  // namespace braid::inline host
