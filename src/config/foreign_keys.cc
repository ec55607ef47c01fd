#include "config/foreign_keys.h"

#include <algorithm>

#include "base/text.h"
#include "config/foreign_key_table.h"

namespace braid {
namespace {

const ForeignKey* find_entry(std::string path) {
  std::replace(path.begin(), path.end(), '-', '_');
  path = "." + path;
  const ForeignKey* best = nullptr;
  for (const ForeignKey& entry : foreign_key_table()) {
    const std::string end = cat(".", entry.theirs);
    const bool matches = path.size() >= end.size() &&
                         path.compare(path.size() - end.size(), std::string::npos, end) == 0;
    if (matches && (best == nullptr || end.size() > std::string(best->theirs).size() + 1))
      best = &entry;
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

std::string describe(const ForeignKey& entry, const Leaf& leaf, const YamlNode& root) {
  const std::string head =
      cat(leaf.node->origin, ": '", leaf.path, "' is a key of ", entry.framework);
  const std::string ours = our_key(entry, leaf.path);
  if (ours.empty()) return cat(head, " without a counterpart here: ", entry.note, "; remove it");
  const std::string value = value_text(*leaf.node);
  const std::string converted = entry.convert == nullptr ? value : entry.convert(value, root);
  // A conversion to several keys, or to a rule of thumb, says it in full.
  const bool whole = converted.find(": ") != std::string::npos;
  std::string advice;
  if (!converted.empty())
    advice = cat(": instead of ", value, " write '", whole ? "" : ours + ": ", converted, "'");
  return cat(head, "; here it is ", ours, *entry.note == '\0' ? "" : cat(" (", entry.note, ")"),
             advice);
}

}  // namespace

std::string foreign_key_text(const YamlNode& node, const std::string& path, const YamlNode& root) {
  std::vector<Leaf> leaves, known;
  collect_leaves(node, path, leaves);
  for (const Leaf& leaf : leaves)
    if (find_entry(leaf.path) != nullptr) known.push_back(leaf);
  if (known.empty()) return "";
  std::string text = describe(*find_entry(known[0].path), known[0], root);
  if (known.size() > 1) text += cat(" (and ", known.size() - 1, " more such keys below it)");
  return text;
}

}  // namespace braid
