#include "foreign/keys/keys.h"

#include <algorithm>

#include "base/text.h"
#include "foreign/keys/key_table.h"

namespace braid::inline foreign_keys {
namespace {

bool ends_so(const std::string& path, const std::string& end) {
  return path.size() >= end.size() &&
         path.compare(path.size() - end.size(), std::string::npos, end) == 0;
}

// How well an entry fits a path that begins with '.': names that agree count most, and a whole
// group more than one name that occurs anywhere. 0: not at all.
size_t fit_of(const std::string& entry, const std::string& path) {
  const auto names = static_cast<size_t>(std::count(entry.begin(), entry.end(), '.'));
  if (ends_so(entry, ".*")) {
    const std::string group = entry.substr(0, entry.size() - 1);
    return path.find(cat(".", group)) == std::string::npos ? 0 : 2 * names + 1;
  }
  if (entry.back() == '*') {
    const std::string begin = cat(".", entry.substr(0, entry.size() - 1));
    return path.compare(path.rfind('.'), begin.size(), begin) == 0 ? 1 : 0;
  }
  return ends_so(path, cat(".", entry)) ? 2 * (names + 1) : 0;
}

const ForeignKey* find_entry(std::string path) {
  std::replace(path.begin(), path.end(), '-', '_');
  path = cat(".", path);
  const ForeignKey* best = nullptr;
  size_t best_fit = 0;
  for (const ForeignKey& entry : foreign_key_table())
    if (const size_t fit = fit_of(entry.theirs, path); fit > best_fit) {
      best = &entry;
      best_fit = fit;
    }
  return best;
}

struct Leaf {
  std::string path;
  const YamlNode* node;
};

void collect_leaves(const YamlNode& node, const std::string& path, std::vector<Leaf>& out) {
  if (node.kind != YamlNode::Kind::kMap) out.push_back({path, &node});
  for (const auto& [key, value] : node.map) collect_leaves(value, cat(path, ".", key), out);
}

std::string our_key(const ForeignKey& entry, const std::string& path) {
  std::string ours = entry.ours;
  const size_t role = ours.find("ROLE");
  if (role != std::string::npos)
    ours.replace(role, 4, path.find("critic") != std::string::npos ? "critic" : "actor");
  return ours;
}

std::string value_text(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kNull) return "null";
  if (node.kind == YamlNode::Kind::kScalar) return node.scalar;
  std::vector<std::string> items;
  for (const YamlNode& item : node.list) items.push_back(item.scalar);
  return cat("[", join(items, ", "), "]");
}

std::string advice_text(const ForeignAdvice& advice, const std::string& ours,
                        const std::string& value) {
  const std::string remark = advice.remark.empty() ? "" : cat(", ", advice.remark);
  switch (advice.kind) {
    case ForeignAdvice::Kind::kValue:
      return cat(": instead of ", value, " write '", ours, ": ", advice.text, "'", remark);
    case ForeignAdvice::Kind::kLines:
      return cat(": instead of ", value, " write '", advice.text, "'", remark);
    case ForeignAdvice::Kind::kRule:
      return cat(": for ", value, " that is ", advice.text);
    case ForeignAdvice::Kind::kNone:
    case ForeignAdvice::Kind::kNothing:
    case ForeignAdvice::Kind::kNoKey:
      break;
  }
  return "";
}

std::string describe(const ForeignKey& entry, const Leaf& leaf, const YamlNode& root,
                     const std::vector<std::string>& algorithms) {
  const std::string head =
      cat(leaf.node->origin, ": '", leaf.path, "' is a key of ", entry.framework);
  const std::string ours = our_key(entry, leaf.path);
  const auto without = [&](const std::string& why) {
    return cat(head, " without a counterpart here: ", why, "; remove it");
  };
  if (ours.empty()) return without(entry.note);
  const std::string value = value_text(*leaf.node);
  const ForeignAdvice advice = entry.convert == nullptr
                                   ? ForeignAdvice{ForeignAdvice::Kind::kValue, value}
                                   : entry.convert(value, {leaf.path, root, algorithms});
  if (advice.kind == ForeignAdvice::Kind::kNoKey) return without(advice.text);
  const std::string key = advice.key.empty() ? ours : advice.key;
  if (advice.kind == ForeignAdvice::Kind::kNothing)
    return cat(head, "; here it is ", key, ", and ", value, " has no counterpart: ", advice.text);
  const bool noted = advice.key.empty() && *entry.note != '\0';
  return cat(head, "; here it is ", key, noted ? cat(" (", entry.note, ")") : "",
             advice_text(advice, key, value));
}

}  // namespace

std::string foreign_key_text(const YamlNode& node, const std::string& path, const YamlNode& root,
                             const std::vector<std::string>& algorithms) {
  std::vector<Leaf> leaves, known;
  collect_leaves(node, path, leaves);
  for (const Leaf& leaf : leaves)
    if (find_entry(leaf.path) != nullptr) known.push_back(leaf);
  if (known.empty()) return "";
  std::string text = describe(*find_entry(known[0].path), known[0], root, algorithms);
  if (known.size() > 1) text += cat(" (and ", known.size() - 1, " more such keys below it)");
  return text;
}

}  // namespace braid::inline foreign_keys
