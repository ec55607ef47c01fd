// Keys of verl, TRL and OpenRLHF (command lines with dashes included) and what they are called
// here, so that no one's habit is accepted in silence or refused without help. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"

namespace braid::inline foreign_keys {

// "FILE:3: 'num_generations' is a key of TRL; here it is rollout.samples_per_prompt (responses per
// prompt): write rollout.samples_per_prompt: 8", or "" where neither the key nor a key below it is
// known. `root` is the whole configuration, for conversions that need other values; `algorithms`
// are the names that algorithm.name may have, of which advice is made.
std::string foreign_key_text(const YamlNode& node, const std::string& path, const YamlNode& root,
                             const std::vector<std::string>& algorithms);

}  // namespace braid::inline foreign_keys
