// Checks that readers of YAML sections share; every failure begins with the place of its value.
#pragma once

#include <string>
#include <vector>

#include "base/yaml.h"

namespace braid::inline base {

// "ORIGIN: what", for a value that is not as it must be.
Status wrong_value(const YamlNode& node, const std::string& what);

// The node is a map; `where` names it in the message.
Status require_map(const YamlNode& node, const std::string& where);

// Every key of the map is one of `allowed`; else the error names the nearest. `where` is the path
// in front of the keys ("calls.generate.").
Status require_known_keys(const YamlNode& map, const std::string& where,
                          const std::vector<std::string>& allowed);

}  // namespace braid::inline base
