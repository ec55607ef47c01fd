// Arguments of a chat template as a configuration gives them. Pure function.
#pragma once

#include "base/json.h"
#include "base/yaml.h"

namespace braid::inline data {

// A map of YAML as JSON: unquoted true, false, null and numbers are such values, everything else is
// text. Errors begin with the place; the names that transformers gives itself are errors.
Result<OrderedJson> template_arguments(const YamlNode& node);

}  // namespace braid::inline data
