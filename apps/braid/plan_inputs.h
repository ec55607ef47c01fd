// Inputs that the planning commands share: a configuration with overrides, and files by path.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"
#include "plan/model_names.h"

namespace braid {

// Loads configuration files and "key.sub=value" overrides, in the order of the arguments. Needs no
// libtorch: algorithm options keep the defaults of their struct.
Result<LoadedConfig> load_planning_config(const std::vector<std::string>& inputs);

// Reads files for plan-side parsers.
ReadText file_reader();

}  // namespace braid
