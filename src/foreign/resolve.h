// References between keys of a configuration, as OmegaConf writes them. Internal to plan/. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "foreign/foreign.h"

namespace braid::inline foreign {

// The text of a key that a reference may name; nothing for a key without a value.
using LookUp = std::function<std::optional<std::string>(const std::string& key)>;

// The value `text` of `key` with its references replaced: "${a.b}", "${.sibling}",
// "${..of_the_parent}" and "${oc.select:a.b,default}" (the default where a.b has no value or
// null). What the look-up does not know, and a circle, stay as written.
std::string resolve_reference(const std::string& text, const std::string& key,
                              const LookUp& look_up);

// All values with references to one another replaced.
ForeignKeys resolved(const ForeignKeys& keys);

}  // namespace braid::inline foreign
