// The list of subcommands, in the order in which --help prints them.
#pragma once

#include <vector>

#include "braid/command.h"

namespace braid {

// argv: of this process, for the commands that go on in braid-engine.
std::vector<Command> all_commands(char** argv);

}  // namespace braid
