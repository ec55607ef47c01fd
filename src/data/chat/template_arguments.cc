#include "data/chat/template_arguments.h"

#include "base/text.h"

namespace braid::inline data {
namespace {

OrderedJson scalar_json(const YamlNode& node) {
  bool truth = false;
  int64_t integer = 0;
  double number = 0;
  if (node.quoted) return node.scalar;
  if (node.scalar == "null" || node.scalar == "~") return nullptr;
  if (parse_bool(node.scalar, &truth)) return truth;
  if (parse_int(node.scalar, &integer)) return integer;
  if (parse_double(node.scalar, &number)) return number;
  return node.scalar;
}

OrderedJson json_of(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kScalar:
      return scalar_json(node);
    case YamlNode::Kind::kMap: {
      OrderedJson out = OrderedJson::object();
      for (const auto& [key, value] : node.map) out[key] = json_of(value);
      return out;
    }
    case YamlNode::Kind::kList: {
      OrderedJson out = OrderedJson::array();
      for (const YamlNode& item : node.list) out.push_back(json_of(item));
      return out;
    }
    case YamlNode::Kind::kNull:
      break;
  }
  return nullptr;
}

}  // namespace

Result<OrderedJson> template_arguments(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kNull) return OrderedJson::object();
  if (node.kind != YamlNode::Kind::kMap)
    return invalid_input(cat(node.origin, ": data.template must be a map of names to values"));
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"})
    if (const YamlNode* found = node.find(name))
      return invalid_input(cat(found->origin, ": data.template: '", name,
                               "' is given by the data, not by the configuration"));
  return json_of(node);
}

}  // namespace braid::inline data
