// --smoke: a recipe as it is written, but two small steps with tiny random models in place of those
// that it names, so that it runs in seconds where they are not there yet.
#pragma once

#include <string>
#include <vector>

#include "config/load.h"

namespace braid::inline launch {

struct Smoke {
  std::vector<std::string> overrides;  // key=value, behind those of the command
  std::string scorer;                  // folder in place of those of rewards of type model
  std::vector<std::string> notes;      // what is replaced by what, a line each
};

// What to replace. Where `writes`, the models are written to RUN-smoke-models, which the overrides
// name. A model of this machine, or the file of model.config, gives its family, a tiny one in its
// sizes where it is larger; without either it is a llama. Errors: a config.json that no family
// reads, and folders that cannot be written.
Result<Smoke> make_smoke(const LoadedConfig& loaded, bool writes);

// The scorer in place of the folders of the rewards; call it once the overrides are read.
void use_scorer(const Smoke& smoke, LoadedConfig* loaded);

}  // namespace braid::inline launch
