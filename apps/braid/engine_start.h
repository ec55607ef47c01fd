// How `braid` becomes braid-engine, the program with libtorch, for the commands that compute.
#pragma once

#include "base/status.h"

namespace braid {

inline constexpr const char* kEngineName = "braid-engine";

// Replaces this process by braid-engine with the same arguments: the process id, the environment
// and what waits for either stay. It is beside this program, or where an installed one has its
// libraries (../lib, ../libexec). Returns only when there is none or it does not start.
Status start_engine(char** argv);

// What libtorch and its libraries read from the environment when they are loaded.
void set_library_limits();

}  // namespace braid
