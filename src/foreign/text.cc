#include "foreign/text.h"

#include "base/text.h"
#include "base/yaml.h"

namespace braid::inline foreign {
namespace {

// "[a, b]", as a command line has a list.
std::string list_text(const YamlNode& list) {
  std::vector<std::string> items;
  for (const YamlNode& item : list.list)
    items.push_back(item.kind == YamlNode::Kind::kScalar ? item.scalar
                                                         : std::string(trim(yaml_text(item))));
  return cat("[", join(items, ", "), "]");
}

void collect_leaves(const YamlNode& node, const std::string& path, ForeignKeys* keys) {
  if (node.kind == YamlNode::Kind::kScalar) (*keys)[path] = node.scalar;
  if (node.kind == YamlNode::Kind::kList) (*keys)[path] = list_text(node);
  if (node.kind == YamlNode::Kind::kNull) (*keys)[path] = "null";
  for (const auto& [name, value] : node.map)
    collect_leaves(value, path.empty() ? name : cat(path, ".", name), keys);
}

bool is_flag(const std::string& word) { return word.size() > 2 && word.rfind("--", 0) == 0; }

}  // namespace

size_t end_of_group(std::string_view text, size_t begin, char open, char close) {
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    if (text[i] == open) ++depth;
    if (text[i] == close && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

Result<ForeignKeys> yaml_keys(std::string_view text, const std::string& where) {
  BRAID_ASSIGN(const YamlNode root, parse_yaml(text, where));
  if (root.kind != YamlNode::Kind::kMap)
    return invalid_input(cat(where, ": a configuration must be a map of keys"));
  ForeignKeys keys;
  collect_leaves(root, "", &keys);
  return keys;
}

ForeignKeys assignment_keys(const std::vector<std::string>& words) {
  ForeignKeys keys;
  for (const std::string& word : words) {
    const size_t begin = word.find_first_not_of('+');
    const size_t equals = word.find('=');
    if (begin == std::string::npos || equals == std::string::npos || equals <= begin) continue;
    keys[word.substr(begin, equals - begin)] = word.substr(equals + 1);
  }
  return keys;
}

ForeignKeys flag_keys(const std::vector<std::string>& words) {
  ForeignKeys keys;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!is_flag(words[i])) continue;
    const std::string flag = words[i].substr(2);
    const size_t equals = flag.find('=');
    if (equals != std::string::npos) {
      keys[flag.substr(0, equals)] = flag.substr(equals + 1);
    } else if (i + 1 < words.size() && !is_flag(words[i + 1]) && words[i + 1] != ";") {
      std::string value = words[++i];  // of several words where it takes several
      while (i + 1 < words.size() && !is_flag(words[i + 1]) && words[i + 1] != ";")
        value += cat(" ", words[++i]);
      keys[flag] = value;
    } else {
      keys[flag] = "true";
    }
  }
  return keys;
}

bool looks_like_yaml(std::string_view text) {
  for (const std::string& line : split(text, '\n')) {
    const std::string body(trim(line));
    if (body.empty() || body[0] == '#') continue;
    const size_t colon = body.find(':');
    const size_t other = body.find_first_of("= \\");
    return colon != std::string::npos && colon < other;
  }
  return false;
}

}  // namespace braid::inline foreign
