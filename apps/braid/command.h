// What a subcommand gives to main(): a name, a help line and a function that adds its options to
// CLI11 and returns the action to run. A file per subcommand; command_list.h has them all.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/status.h"

namespace braid {

using Action = std::function<Status()>;

struct Command {
  const char* name;
  const char* help;
  // Adds the options; captures their storage in the returned action.
  std::function<Action(CLI::App& app)> define;
};

}  // namespace braid
