// A YAML tree as JSON values. Pure function.
#pragma once

#include "base/json.h"
#include "base/yaml.h"

namespace braid::inline base {

// Maps, lists and scalars as they are; a scalar that is not quoted becomes null, a truth value or a
// number where YAML's core schema reads it so, else text.
Json json_of_yaml(const YamlNode& node);

}  // namespace braid::inline base
