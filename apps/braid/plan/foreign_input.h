// A configuration of another framework as its keys: YAML, arguments, or a launch script.
#pragma once

#include <string>
#include <vector>

#include "foreign/foreign.h"

namespace braid {

struct ForeignInput {
  ForeignKeys keys;
  std::vector<std::string> overrides;  // those among them that the command line states
  std::vector<std::string> notes;
  ForeignKeys stated;      // by the file itself, without one that it names
  std::string script_way;  // how a launch script was read; "" = the file is none
};

struct ForeignInputOptions {
  std::vector<std::string> inputs;  // a file, then key=value overrides and a script's NAME=value
  std::string read_script;          // sandbox | text; "" = the first where one can be had
  int gpus_per_node = 0;            // 0 = as the script says
  std::string home = "";            // a script's $HOME where no input says it; "" = a stand-in
};

// Errors: no file, one that holds no configuration, --read-script where it is no script.
Result<ForeignInput> read_foreign_input(const Framework& framework,
                                        const ForeignInputOptions& options);

}  // namespace braid
