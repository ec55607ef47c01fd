// The list of subcommands, in the order in which --help prints them.
#pragma once

#include <vector>

#include "command.h"

namespace braid {

std::vector<Command> all_commands();

}  // namespace braid
