// Words of a shell script as the shell would pass them, as far as that can be known without running
// it. Internal to plan/. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::foreign {

// Comments and line continuations removed, quotes resolved; variables and arrays that the text
// itself assigns replaced, with the defaults of "${NAME:-default}" for the others; "$((1024 * 2))"
// computed; "$@" empty. ";", "&" and "|" are words ";"; redirections are left out. What only a
// running shell knows stays as "$NAME" or "$(command)". Errors: a command substitution or an
// unknown array in the place of arguments, with its line.
Result<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace braid::foreign
