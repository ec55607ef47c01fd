// How every command on a configuration reads its inputs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "braid/command.h"
#include "config/load.h"

namespace braid {

// Makes a command take configuration inputs, which CLI11 leaves in app.remaining(): files in order,
// then key.sub=value, --key.sub value or --key.sub=value.
void take_config_inputs(CLI::App& app);

// The files, read, and the overrides among such inputs.
Result<ConfigSources> config_sources(const std::vector<std::string>& inputs);

// The configuration that such inputs mean; what only the run side can judge is left unchecked.
Result<LoadedConfig> read_config_inputs(const std::vector<std::string>& inputs);

// The configuration with model folders in place of names of the Hugging Face cache
// (host/hub_cache.h), where no size is given instead: what planning needs. Errors name the key.
Result<Config> planning_config(const Config& config);

}  // namespace braid
