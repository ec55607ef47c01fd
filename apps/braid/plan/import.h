// The action of `braid plan --import`.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace braid {

struct ImportArguments {
  std::string framework;            // verl | openrlhf
  std::vector<std::string> inputs;  // a file of the framework, then its key=value overrides
  std::string gpu;                  // catalogue key of the devices; required
  std::string prompt_length, response_length;  // as in the section `workload`; "" = the longest
  bool json = false;
  std::string read_script;               // sandbox | text; "" = the first where one can be had
  int gpus_per_node = 0;                 // for what does not say it; 0 = not stated
  bool no_changes = false;               // price it only
  bool keys_only = false;                // print what is read, price nothing
  std::vector<std::string> model_sizes;  // KEY=NAME or KEY=config.json
  std::string version;                   // of the framework; "" = as the keys tell
  std::string calibration;               // file; "" = the built-in one
};

// Prices a configuration of another framework and prints the best legal changes in its own keys.
Status run_plan_import(const ImportArguments& arguments);

}  // namespace braid
