// Launch scripts of other frameworks as the flat keys of the training that they start.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "foreign/foreign.h"

namespace braid::inline foreign_scripts {

struct LaunchScriptOptions {
  std::string way;                     // sandbox | text; "" = the first where one can be had
  std::vector<std::string> variables;  // NAME=value
  int gpus_per_node = 0;               // 0 = as the script's #SBATCH lines say, else 8
};

struct LaunchScript {
  ForeignKeys stated;              // by the launch itself
  ForeignKeys keys;                // with the configuration file that it names
  std::vector<std::string> notes;  // what was assumed, one line each; the first says the way
  std::string way;                 // sandbox | text
};

// By its name or its first line; YAML and files of arguments alone are none.
bool is_launch_script(const std::string& path, const std::string& text);

// NAME=value in capitals.
bool is_script_variable(const std::string& item);

// The first training that the script starts. Errors: a script that starts none, with how it ended;
// the way `sandbox` where none can be had.
Result<LaunchScript> read_launch_script(const Framework& framework, const std::string& path,
                                        const std::string& text,
                                        const LaunchScriptOptions& options);

}  // namespace braid::inline foreign_scripts
