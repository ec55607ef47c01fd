// Files that a command writes at its end, looked at before its work begins. Stateless.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "base/status.h"

namespace braid {

// Whether each file can be written: {option, path}; "" as a path is none. The error names the
// option: a folder that does not exist or takes no files, or a folder in the file's place.
Status check_outputs(std::initializer_list<std::pair<const char*, std::string>> files);

}  // namespace braid
