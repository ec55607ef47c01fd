// Shared by the run-side subcommands.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"

namespace braid {

// Configuration from command-line inputs: existing files in order, then key.sub=value overrides.
Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs);

}  // namespace braid
