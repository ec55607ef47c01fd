#include "base/yaml_check.h"

#include <algorithm>

#include "base/text.h"

namespace braid::inline base {

Status wrong_value(const YamlNode& node, const std::string& what) {
  return invalid_input(cat(node.origin, ": ", what));
}

Status require_map(const YamlNode& node, const std::string& where) {
  if (node.kind == YamlNode::Kind::kMap) return ok_status();
  return wrong_value(node, cat(where, " must be a group of keys"));
}

Status require_known_keys(const YamlNode& map, const std::string& where,
                          const std::vector<std::string>& allowed) {
  for (const auto& [key, value] : map.map)
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end())
      return wrong_value(value, cat("unknown key '", where, key, "'", did_you_mean(key, allowed),
                                    "; keys here: ", join(allowed, ", ")));
  return ok_status();
}

}  // namespace braid::inline base
