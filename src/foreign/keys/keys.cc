#include "foreign/keys/keys.h"

#include <algorithm>

#include "base/contains.h"
#include "base/text.h"
#include "foreign/keys/value_helpers.h"

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

// Whether one of the owners is among those who use the entry's key; no owners: whoever does.
bool used_by(const ForeignKey& entry, const std::vector<std::string>& owners) {
  if (owners.empty()) return true;
  for (const std::string& user : split(entry.framework, ','))
    if (contains(owners, std::string(trim(user)))) return true;
  return false;
}

const ForeignKey* find_entry(std::string path, const std::vector<std::string>& owners) {
  std::replace(path.begin(), path.end(), '-', '_');
  path = cat(".", path);
  const ForeignKey* best = nullptr;
  size_t best_fit = 0;
  for (const ForeignKey& entry : foreign_key_table())
    if (const size_t fit = fit_of(entry.theirs, path); fit > best_fit && used_by(entry, owners)) {
      best = &entry;
      best_fit = fit;
    }
  return best;
}

struct Leaf {
  std::string path;
  const YamlNode* node;
};

// A group without keys is one itself: it says something too.
void collect_leaves(const YamlNode& node, const std::string& path, std::vector<Leaf>& out) {
  if (node.map.empty()) out.push_back({path, &node});
  for (const auto& [key, value] : node.map) collect_leaves(value, cat(path, ".", key), out);
}

std::string our_key(const ForeignKey& entry, const std::string& path, const YamlNode& root) {
  std::string ours = entry.ours;
  const size_t at = ours.find("ROLE");
  if (at == std::string::npos) return ours;
  const bool critic = path.find("critic") != std::string::npos;
  const bool reward = key_advice::name_of_algorithm(root) == "rm";
  return ours.replace(at, 4, critic ? "critic" : reward ? "reward" : "actor");
}

std::string value_text(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kNull) return "null";
  if (node.kind == YamlNode::Kind::kScalar) return node.scalar;
  std::vector<std::string> items;
  for (const auto& [key, value] : node.map) items.push_back(cat(key, ": ", value_text(value)));
  for (const YamlNode& item : node.list) items.push_back(value_text(item));
  const bool map = node.kind == YamlNode::Kind::kMap;
  return cat(map ? "{" : "[", join(items, ", "), map ? "}" : "]");
}

// Whether the last name of a path is that of a secret. Tokens of a vocabulary are none.
bool names_a_secret(const std::string& path) {
  static const std::vector<std::string> of_vocabularies = {"bos_token", "eos_token",  "pad_token",
                                                           "unk_token", "stop_token", "mask_token"};
  const std::string name = path.substr(path.rfind('.') + 1);
  if (contains(of_vocabularies, name)) return false;
  for (const char* end : {".use_wandb", ".wandb.key", "_token", ".token", "api_key", "access_key",
                          "secret_key", "secret", "password"})
    if (ends_so(path, end)) return true;
  return false;
}

ForeignAdvice advice_of(const ForeignKey& entry, const std::string& value,
                        const ForeignContext& context) {
  if (entry.convert != nullptr) return entry.convert(value, context);
  if (key_advice::is_null(value)) return {ForeignAdvice::Kind::kNothing, "it says nothing"};
  return {ForeignAdvice::Kind::kValue, value};
}

KeyAnswer answer(const Leaf& leaf, const KeyQuestion& question,
                 const std::vector<std::string>& owners) {
  const std::string value = value_text(*leaf.node);
  KeyAnswer out{leaf.path,
                shown_value(leaf.path, value),
                leaf.node->origin,
                find_entry(leaf.path, owners),
                "",
                {}};
  if (out.entry == nullptr) return out;
  out.ours = our_key(*out.entry, leaf.path, question.root);
  if (out.ours.empty()) return out;
  out.advice = advice_of(*out.entry, value, {leaf.path, question.root, question.algorithms});
  if (!out.advice.key.empty()) out.ours = out.advice.key;
  if (out.advice.kind == ForeignAdvice::Kind::kNoKey) out.ours.clear();
  return out;
}

std::string advice_text(const KeyAnswer& answer) {
  const ForeignAdvice& advice = answer.advice;
  const std::string remark = advice.remark.empty() ? "" : cat(", ", advice.remark);
  const std::vector<std::string> lines = lines_of_answer(answer);
  if (!lines.empty())
    return cat(": instead of ", answer.value, " write '", join(lines, "' and '"), "'", remark);
  if (advice.kind == ForeignAdvice::Kind::kRule)
    return cat(": for ", answer.value, " that is ", advice.text);
  return "";
}

std::string describe(const KeyAnswer& answer) {
  const std::string head =
      cat(answer.origin, ": '", answer.path, "' is a key of ", answer.entry->framework);
  if (answer.ours.empty())
    return cat(head, " without a counterpart here: ", reason_of_answer(answer), "; remove it");
  if (answer.advice.kind == ForeignAdvice::Kind::kNothing)
    return cat(head, "; here it is ", answer.ours, ", and ", answer.value,
               " has no counterpart: ", answer.advice.text);
  const bool noted = answer.advice.key.empty() && *answer.entry->note != '\0';
  return cat(head, "; here it is ", answer.ours, noted ? cat(" (", answer.entry->note, ")") : "",
             advice_text(answer));
}

}  // namespace

std::vector<std::string> key_owners(const std::string& framework) {
  if (framework == "trl") return {"TRL", "TRL PPO", "transformers"};
  if (framework == "verl") return {"verl"};
  if (framework == "openrlhf") return {"OpenRLHF"};
  return {};
}

std::vector<KeyAnswer> answer_keys(const YamlNode& node, const std::string& path,
                                   const KeyQuestion& question) {
  std::vector<Leaf> leaves;
  collect_leaves(node, path, leaves);
  const std::vector<std::string> owners = key_owners(question.framework);
  std::vector<KeyAnswer> out;
  for (Leaf& leaf : leaves) {
    if (path.empty()) leaf.path.erase(0, 1);  // the dot before the first name
    out.push_back(answer(leaf, question, owners));
  }
  return out;
}

std::vector<std::string> lines_of_answer(const KeyAnswer& answer) {
  const ForeignAdvice& advice = answer.advice;
  if (advice.kind == ForeignAdvice::Kind::kValue) return {cat(answer.ours, ": ", advice.text)};
  if (advice.kind != ForeignAdvice::Kind::kLines) return {};
  std::vector<std::string> out;
  const std::string between = "' and '";
  for (size_t begin = 0; begin != std::string::npos;) {
    const size_t end = advice.text.find(between, begin);
    out.push_back(advice.text.substr(begin, end == std::string::npos ? end : end - begin));
    begin = end == std::string::npos ? end : end + between.size();
  }
  return out;
}

std::string shown_value(const std::string& path, const std::string& value) {
  const bool says_nothing =
      key_advice::is_null(value) || key_advice::is_true(value) || key_advice::is_false(value);
  std::string plain = lowered(cat(".", path));
  std::replace(plain.begin(), plain.end(), '-', '_');
  return !says_nothing && names_a_secret(plain) ? "***" : value;
}

std::string reason_of_answer(const KeyAnswer& answer) {
  switch (answer.advice.kind) {
    case ForeignAdvice::Kind::kNothing:
    case ForeignAdvice::Kind::kNoKey:
      return answer.advice.text;
    case ForeignAdvice::Kind::kRule:
      return cat(answer.ours, ": ", answer.advice.text);
    case ForeignAdvice::Kind::kValue:
    case ForeignAdvice::Kind::kLines:
    case ForeignAdvice::Kind::kNone:
      break;
  }
  const std::string note = answer.entry == nullptr ? "" : answer.entry->note;
  return answer.ours.empty() ? note : cat(answer.ours, note.empty() ? "" : cat(" (", note, ")"));
}

std::string foreign_key_text(const YamlNode& node, const std::string& path, const YamlNode& root,
                             const std::vector<std::string>& algorithms) {
  std::vector<KeyAnswer> known = answer_keys(node, path, {root, algorithms});
  std::erase_if(known, [](const KeyAnswer& answer) { return answer.entry == nullptr; });
  if (known.empty()) return "";
  std::string text = describe(known[0]);
  if (known.size() > 1) text += cat(" (and ", known.size() - 1, " more such keys below it)");
  return text;
}

}  // namespace braid::inline foreign_keys
