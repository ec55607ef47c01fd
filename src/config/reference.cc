#include "config/reference.h"

#include <algorithm>
#include <map>

#include "foreign/keys/keys.h"

namespace braid::inline config {
namespace {

std::string last_part(const std::string& path) { return split(path, '.').back(); }

// Walks a tree along the list of keys and stops at the first key that is not in it.
class KeyChecker {
 public:
  KeyChecker(const YamlNode& root, const std::vector<std::string>& algorithms)
      : root_(root), algorithms_(algorithms), rows_(option_rows()) {
    for (const OptionRow& row : rows_) by_path_[row.path] = &row;
  }

  Status check(const YamlNode& node, const std::string& prefix) const {
    for (const auto& [key, value] : node.map) {
      const auto found = by_path_.find(prefix + key);
      if (found == by_path_.end()) return unknown(value, prefix, key);
      const OptionRow::Kind kind = found->second->kind;
      const YamlNode::Kind wanted =
          kind == OptionRow::Kind::kGroup ? YamlNode::Kind::kMap : YamlNode::Kind::kList;
      const bool empty = value.kind == YamlNode::Kind::kNull;
      if (kind != OptionRow::Kind::kLeaf && value.kind != wanted && !empty)
        BRAID_TRY(wrong_shape(value, prefix + key));
      if (kind == OptionRow::Kind::kGroup) BRAID_TRY(check(value, prefix + key + "."));
      if (kind == OptionRow::Kind::kListOfGroups)
        for (const YamlNode& item : value.list) BRAID_TRY(check(item, prefix + key + "[]."));
    }
    return ok_status();
  }

 private:
  // A name that is a group or list here may be a key of another framework; if it is not, the reader
  // says what is wrong.
  Status wrong_shape(const YamlNode& node, const std::string& path) const {
    const std::string foreign = foreign_key_text(node, path, root_, algorithms_);
    return foreign.empty() ? ok_status() : invalid_input(foreign);
  }

  Status unknown(const YamlNode& node, const std::string& prefix, const std::string& key) const {
    const std::string path = prefix + key;
    std::vector<std::string> siblings;
    for (const OptionRow& row : rows_)
      if (row.path.rfind(prefix, 0) == 0 && row.path.find('.', prefix.size()) == std::string::npos)
        siblings.push_back(row.path.substr(prefix.size()));
    const std::string foreign = foreign_key_text(node, path, root_, algorithms_);
    const std::string near = nearest_name(key, siblings);
    const bool misspelt = !near.empty() && edit_distance(key, near) == 1;
    if (!foreign.empty() && !misspelt) return invalid_input(foreign);
    return invalid_input(cat(node.origin, ": unknown key '", path, "'",
                             suggestion(prefix, last_part(key), siblings),
                             "; keys here: ", join(siblings, ", ")));
  }

  // The nearest of names that lie farther away than siblings of a section: at most a third of the
  // letters may differ.
  static std::string close_name(const std::string& key, const std::vector<std::string>& names) {
    const std::string near = nearest_name(key, names);
    return 3 * edit_distance(key, near) <= static_cast<int>(key.size()) ? near : "";
  }

  // A key of the same name elsewhere is more likely than a similar one here; not for an entry of a
  // list, which nobody writes where a section of the file belongs.
  std::string suggestion(const std::string& prefix, const std::string& key,
                         const std::vector<std::string>& siblings) const {
    if (prefix.find("[]") != std::string::npos) {
      const std::string near = close_name(key, siblings);
      return near.empty() ? "" : cat(" (did you mean '", prefix, near, "'?)");
    }
    for (const OptionRow& row : rows_)
      if (last_part(row.path) == key && row.path.find("[]") == std::string::npos)
        return cat(" (did you mean '", row.path, "'?)");
    const std::string sibling = nearest_name(key, siblings);
    if (!sibling.empty()) return cat(" (did you mean '", prefix, sibling, "'?)");
    std::vector<std::string> names;
    for (const OptionRow& row : rows_) names.push_back(last_part(row.path));
    const std::string anywhere = close_name(key, names);
    if (anywhere.empty()) return "";
    const auto at = std::find(names.begin(), names.end(), anywhere) - names.begin();
    return cat(" (did you mean '", rows_[at].path, "'?)");
  }

  const YamlNode& root_;
  const std::vector<std::string>& algorithms_;
  std::vector<OptionRow> rows_;
  std::map<std::string, const OptionRow*> by_path_;
};

// "|" separates the columns of a Markdown table.
std::string escaped(const std::string& text) { return join(split(text, '|'), "\\|"); }

// "reward[1].weight" as "reward[].weight".
std::string without_places(const std::string& key) {
  std::string out;
  bool inside = false;
  for (const char c : key) {
    inside = (inside || out.ends_with('[')) && c != ']';
    if (!inside) out += c;
  }
  return out;
}

}  // namespace

std::vector<OptionRow> option_rows() {
  Config config;
  OptionLister lister;
  visit(lister, config);
  return lister.rows;
}

const KeyFacts* facts_of(const std::string& key) {
  static const std::map<std::string, KeyFacts>& facts = *[] {
    auto* out = new std::map<std::string, KeyFacts>();
    for (const OptionRow& row : option_rows())
      (*out)[row.kind == OptionRow::Kind::kListOfGroups ? row.path + "[]" : row.path] = row.facts;
    return out;
  }();
  std::string path = without_places(key);
  while (true) {
    if (const auto found = facts.find(path); found != facts.end()) return &found->second;
    const size_t cut = path.find_last_of(".[");
    if (cut == std::string::npos) break;
    path.resize(cut);
  }
  const auto list = facts.find(path + "[]");
  return list == facts.end() ? nullptr : &list->second;
}

std::string configuration_table() {
  std::string out =
      "| key | type | default | allowed | on resume | meaning |\n|---|---|---|---|---|---|\n";
  for (const OptionRow& row : option_rows()) {
    const bool leaf = row.kind == OptionRow::Kind::kLeaf;
    const std::string name = leaf ? cat("`", row.path, "`") : cat("**`", row.path, "`**");
    out += cat("| ", name, " | ", row.type, " | ", leaf ? cat("`", row.default_value, "`") : "",
               " | ", escaped(row.allowed), " | ", leaf && row.facts.free_on_resume ? "free" : "",
               " | ", escaped(row.doc), " |\n");
  }
  return out;
}

Status check_option_keys(const YamlNode& tree, const std::vector<std::string>& algorithms) {
  return KeyChecker(tree, algorithms).check(tree, "");
}

}  // namespace braid::inline config
