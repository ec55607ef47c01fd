// How this process was started, to start others like it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace braid {

// The words of the command line, with a path of the program first that stays right whatever the
// folder.
Result<std::vector<std::string>> own_command();

}  // namespace braid
