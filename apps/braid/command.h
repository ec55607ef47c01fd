// What a subcommand gives to main(): a name, a help line and a function that adds its options to
// CLI11 and returns the action to run. One small file per subcommand; main.cc lists them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/status.h"

namespace braid {

using Action = std::function<Status()>;

struct Command {
  const char* name;
  const char* help;
  Action (*define)(CLI::App& app);  // captures option storage in the returned action
};

}  // namespace braid
