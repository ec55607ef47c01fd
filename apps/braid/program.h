// What braid and braid-engine share: from arguments to a subcommand's action and an exit code.
#pragma once

#include <vector>

#include "base/status.h"
#include "braid/command.h"

namespace braid {

// Parses the arguments, runs the command that they name and prints an error as one line. Returns
// the exit code of the process.
int run_program(const std::vector<Command>& commands, int argc, char** argv);

// Prints an error as one line. Returns the exit code of a process that ends so.
int finish(const Status& status);

}  // namespace braid
