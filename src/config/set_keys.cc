#include "config/set_keys.h"

#include "base/text.h"
#include "config/origin.h"

namespace braid::inline config {
namespace {

using VisitKey = std::function<void(const std::string& key, const YamlNode& value)>;

void visit_below(const YamlNode& node, const std::string& path, const VisitKey& visit) {
  if (node.kind == YamlNode::Kind::kMap && (!node.map.empty() || path.empty())) {
    for (const auto& [name, child] : node.map)
      visit_below(child, path.empty() ? name : cat(path, ".", name), visit);
    return;
  }
  const bool groups = node.kind == YamlNode::Kind::kList && !node.list.empty() &&
                      node.list.front().kind == YamlNode::Kind::kMap;
  if (groups)
    for (const YamlNode& item : node.list) visit_below(item, path + "[]", visit);
  else if (is_written(node))
    visit(path, node);
}

}  // namespace

void visit_set_keys(const YamlNode& resolved, const VisitKey& visit) {
  visit_below(resolved, "", visit);
}

bool is_within(const std::string& key, const std::string& group) {
  return key.rfind(group, 0) == 0 && (key.size() == group.size() || key[group.size()] == '.' ||
                                      key.compare(group.size(), 2, "[]") == 0);
}

}  // namespace braid::inline config
