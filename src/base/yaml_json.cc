#include "base/yaml_json.h"

#include <cmath>

#include "base/text.h"

namespace braid::inline base {
namespace {

Json json_of_scalar(const YamlNode& node) {
  const std::string& text = node.scalar;
  if (node.quoted) return text;
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  if (text.empty() || text == "~" || text == "null") return nullptr;
  int64_t whole = 0;
  double real = 0;
  if (parse_int(text, &whole)) return whole;
  if (parse_double(text, &real) && std::isfinite(real)) return real;
  return text;
}

}  // namespace

Json json_of_yaml(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar:
      return json_of_scalar(node);
    case YamlNode::Kind::kMap: {
      Json out = Json::object();
      for (const auto& [key, value] : node.map) out[key] = json_of_yaml(value);
      return out;
    }
    case YamlNode::Kind::kList:
      break;
  }
  Json out = Json::array();
  for (const YamlNode& item : node.list) out.push_back(json_of_yaml(item));
  return out;
}

}  // namespace braid::inline base
