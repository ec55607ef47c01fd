// The keys that somebody set in a loaded configuration, told from those that have their defaults.
// Pure functions.
#pragma once

#include <functional>
#include <string>

#include "base/yaml.h"

namespace braid::inline config {

// Visits the keys of LoadedConfig::resolved that were written in a file or on the command line, in
// its order. Keys of a list's entries are called "reward[].weight", once for each entry.
void visit_set_keys(
    const YamlNode& resolved,
    const std::function<void(const std::string& key, const YamlNode& value)>& visit);

// Whether a key is the group itself or lies in it: "lora.rank" in "lora", "reward[].type" in
// "reward".
bool is_within(const std::string& key, const std::string& group);

}  // namespace braid::inline config
