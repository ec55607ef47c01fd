// Where a resolved value comes from, as YamlNode::origin says it: a place that somebody wrote,
// "default", or the default that algorithm.name decides. Pure; thread-safe.
#pragma once

#include <string>

#include "base/text.h"
#include "base/yaml.h"

namespace braid::inline config {

inline constexpr const char* kDefaultOrigin = "default";
inline constexpr const char* kNamedDefaultOrigin = "default of algorithm.name: ";  // and the name

// Whether somebody wrote the value.
inline bool is_written(const YamlNode& node) {
  return !node.origin.empty() && node.origin != kDefaultOrigin &&
         node.origin.rfind(kNamedDefaultOrigin, 0) != 0;
}

}  // namespace braid::inline config
