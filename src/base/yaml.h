// YAML as a tree that remembers where each value came from. Stricter than YAML: duplicate keys,
// anchors, aliases and tags are errors. Scalars stay text; base/config converts them strictly.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace braid::inline base {

struct YamlNode {
  enum class Kind { kNull, kScalar, kMap, kList };

  YamlNode();
  YamlNode(Kind kind, std::string scalar, bool quoted, std::string origin);
  YamlNode(const YamlNode&);
  YamlNode(YamlNode&&) noexcept;
  YamlNode& operator=(const YamlNode&);
  YamlNode& operator=(YamlNode&&) noexcept;
  ~YamlNode();

  Kind kind = Kind::kNull;
  std::string scalar;   // text of a scalar, unquoted
  bool quoted = false;  // "12" is text even where 12 would be a number
  std::string origin;   // "file.yaml:12", "command line", "default"
  std::vector<std::pair<std::string, YamlNode>> map;  // in the order written
  std::vector<YamlNode> list;

  YamlNode* find(std::string_view key);
  const YamlNode* find(std::string_view key) const;
};

// Parses one document; an empty text is an empty map. More than 100 levels of lists and maps in
// each other are an error. Errors name file and line.
Result<YamlNode> parse_yaml(std::string_view text, const std::string& file);

// Values of overlay replace those of base; maps are merged key by key, lists are replaced whole.
void merge_yaml(YamlNode& base, const YamlNode& overlay);

// Sets the value at a dotted path ("rollout.temperature"), creating maps; value is parsed as YAML
// ("[1, 2]", "0.5").
Status set_yaml_path(YamlNode& root, const std::string& path, const std::string& value,
                     const std::string& origin);

// Replaces ${NAME} in every scalar by lookup(NAME); an unset name is an error at its place.
Status expand_variables(
    YamlNode& root, const std::function<std::optional<std::string>(const std::string&)>& lookup);

// The tree as block-style YAML text; with origins, each scalar line ends in "# origin".
std::string yaml_text(const YamlNode& root, bool with_origins = false);

}  // namespace braid::inline base
