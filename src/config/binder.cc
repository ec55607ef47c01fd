#include "config/binder.h"

#include <cmath>

namespace braid::inline config {
namespace {

Status wrong_type(const YamlNode& node, const std::string& key, const char* expected) {
  const std::string place = cat(node.origin, ": ", key, " must be ", expected, ", not ");
  if (node.kind == YamlNode::Kind::kMap) return invalid_input(cat(place, "a group of keys"));
  if (node.kind == YamlNode::Kind::kNull) return invalid_input(cat(place, "empty"));
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted)
    return invalid_input(cat(place, "'", node.scalar, "'"));
  if (node.kind == YamlNode::Kind::kScalar)
    return invalid_input(cat(place, "the text \"", node.scalar, "\"; write it without quotes"));
  const bool one = node.list.size() == 1 && node.list[0].kind == YamlNode::Kind::kScalar;
  return invalid_input(cat(
      place, "a list", one ? cat("; write ", node.list[0].scalar, " without the brackets") : ""));
}

bool plain(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

YamlNode leaf(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.scalar = text;
  return node;
}

}  // namespace

Status read_scalar(const YamlNode& node, const std::string& key, std::string* out) {
  if (node.kind == YamlNode::Kind::kMap || node.kind == YamlNode::Kind::kList)
    return wrong_type(node, key, "text");
  *out = node.scalar == "null" && !node.quoted ? "" : node.scalar;
  return ok_status();
}

Status read_scalar(const YamlNode& node, const std::string& key, double* out) {
  if (!plain(node) || !parse_double(node.scalar, out) || !std::isfinite(*out))
    return wrong_type(node, key, "a finite number");
  return ok_status();
}

Status read_scalar(const YamlNode& node, const std::string& key, int64_t* out) {
  if (!plain(node) || !parse_int(node.scalar, out))
    return wrong_type(node, key, "a whole number (decimal, no leading zero)");
  return ok_status();
}

Status read_scalar(const YamlNode& node, const std::string& key, bool* out) {
  if (!plain(node) || !parse_bool(node.scalar, out)) return wrong_type(node, key, "true or false");
  return ok_status();
}

YamlNode scalar_node(const std::string& value) {
  YamlNode node = leaf(value);
  double number = 0;
  node.quoted =
      value.empty() || value == "true" || value == "false" || parse_double(value, &number);
  return node;
}
YamlNode scalar_node(double value) { return leaf(format_double(value)); }
YamlNode scalar_node(int64_t value) { return leaf(cat(value)); }
YamlNode scalar_node(bool value) { return leaf(value ? "true" : "false"); }

Status unknown_key(const YamlNode& node, const std::string& path,
                   const std::vector<std::string>& known) {
  const std::string last = split(path, '.').back();
  return invalid_input(cat(node.origin, ": unknown key '", path, "'", did_you_mean(last, known),
                           "; keys here: ", join(known, ", ")));
}

}  // namespace braid::inline config
