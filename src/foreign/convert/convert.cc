#include "foreign/convert/convert.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "base/contains.h"
#include "base/text.h"
#include "config/load.h"
#include "config/reference.h"
#include "foreign/keys/keys.h"
#include "foreign/resolve.h"
#include "foreign/text.h"

namespace braid::inline foreign {
namespace {

constexpr const char* kNameKey = "algorithm.name";

using Note = Conversion::Note;

// Hydra's own keys, and classes that it makes of a group.
bool is_of_hydra(const std::string& key) {
  return key.empty() || key[0] == '-' || key.rfind("hydra.", 0) == 0 ||
         key.rfind("defaults", 0) == 0 || key.ends_with("_target_");
}

// A key of TRL that only one trainer has, and its algorithm here.
struct TrainerKey {
  const char* key;
  const char* algorithm;
};
constexpr TrainerKey kTrainerKeys[] = {{"scale_rewards", "grpo"},
                                       {"importance_sampling_level", "grpo"},
                                       {"delta", "grpo"},
                                       {"top_entropy_quantile", "grpo"},
                                       {"normalize_advantages", "rloo"},
                                       {"rloo_k", "rloo"},
                                       {"num_ppo_epochs", "ppo"},
                                       {"f_divergence_type", "dpo"},
                                       {"ld_alpha", "dpo"},
                                       {"rpo_alpha", "dpo"},
                                       {"use_weighting", "dpo"},
                                       {"desirable_weight", "kto"},
                                       {"undesirable_weight", "kto"},
                                       {"center_rewards_coefficient", "rm"},
                                       {"assistant_only_loss", "sft"},
                                       {"completion_only_loss", "sft"},
                                       {"packing", "sft"},
                                       {"seq_kd", "distill"},
                                       {"lmbda", "distill"}};

Result<std::string> trainer_of(const ForeignKeys& keys) {
  for (const TrainerKey& entry : kTrainerKeys)
    if (keys.count(entry.key) > 0) return std::string(entry.algorithm);
  return invalid_input(
      "the keys do not say which trainer of TRL they are for; add --algorithm NAME, such as grpo "
      "(GRPOTrainer), rloo, dpo, kto, orpo, online_dpo, sft, rm (RewardTrainer), ppo or distill "
      "(GKDTrainer)");
}

YamlNode scalar(const std::string& text, const std::string& origin) {
  return YamlNode(YamlNode::Kind::kScalar, text, false, origin);
}

// The one value of a tree of one key.
YamlNode* only_value(YamlNode* tree) {
  while (!tree->map.empty()) tree = &tree->map.front().second;
  return tree;
}

// Lists and groups in flow style are read; what is none stays the text that it is.
void set_key(const std::string& key, const std::string& value, const std::string& origin,
             YamlNode* root) {
  if (set_yaml_path(*root, key, value, origin).ok()) return;
  YamlNode one;
  if (!set_yaml_path(one, key, "x", origin).ok()) return;
  *only_value(&one) = scalar(value, origin);
  merge_yaml(*root, one);
}

void set_origins(const std::string& origin, YamlNode* node) {
  node->origin = origin;
  for (auto& [key, value] : node->map) set_origins(origin, &value);
  for (YamlNode& item : node->list) set_origins(origin, &item);
}

std::string text_of_node(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar) return node.scalar;
  std::string out = yaml_text(node);
  std::replace(out.begin(), out.end(), '\n', ' ');
  return std::string(trim(out));
}

bool says_the_same(const YamlNode& a, const YamlNode& b) {
  double left = 0, right = 0;
  const std::string x = text_of_node(a), y = text_of_node(b);
  return x == y || (parse_double(x, &left) && parse_double(y, &right) && left == right);
}

// Puts values into a configuration, the first of a key wins.
class Merger {
 public:
  explicit Merger(Conversion* out) : out_(out) {}

  // `answer` is of a key that was stated, or of a default, which gives way without a word.
  void put(const std::string& line, const KeyAnswer& answer, bool stated) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) return;
    YamlNode tree;
    const std::string& remark = answer.advice.remark;
    set_key(line.substr(0, colon), line.substr(colon + 2), answer.origin, &tree);
    set_origins(remark.empty() ? answer.origin : cat(answer.origin, " (", remark, ")"), &tree);
    YamlNode* value = only_value(&tree);
    for (size_t i = 0; i < std::min(answer.advice.items.size(), value->list.size()); ++i)
      value->list[i].origin = answer.advice.items[i];
    merge(tree, "", answer, stated, &out_->config);
  }

 private:
  void merge(const YamlNode& from, const std::string& prefix, const KeyAnswer& answer, bool stated,
             YamlNode* into) {
    into->kind = YamlNode::Kind::kMap;
    for (const auto& [key, value] : from.map) {
      YamlNode* there = into->find(key);
      const std::string path = prefix + key;
      if (there == nullptr)
        into->map.emplace_back(key, value);
      else if (there->kind == YamlNode::Kind::kMap && value.kind == YamlNode::Kind::kMap)
        merge(value, path + ".", answer, stated, there);
      else if (path == "reward" && stated)
        there->list.insert(there->list.end(), value.list.begin(), value.list.end());
      else if (stated && says_the_same(*there, value))
        there->origin += cat(", ", answer.path);
      else if (stated)
        out_->to_decide.push_back({answer.path, answer.value,
                                   cat(path, ": ", text_of_node(value), ", but ", there->origin,
                                       " says ", text_of_node(*there), ", which is taken")});
    }
  }

  Conversion* out_;
};

// "off", in the words of those frameworks: a key that is off asks for nothing.
bool asks_for_nothing(const std::string& value) {
  static const std::vector<std::string> words = {"null", "None", "", "[]", "{}", "false", "False"};
  return contains(words, value);
}

void note(const KeyAnswer& answer, Conversion* out) {
  const Note said{answer.path, answer.value, reason_of_answer(answer)};
  const bool by_hand = !answer.ours.empty() && (answer.advice.kind == ForeignAdvice::Kind::kRule ||
                                                answer.advice.kind == ForeignAdvice::Kind::kNone);
  if (answer.entry == nullptr)
    out->unknown.push_back({answer.path, answer.value, ""});
  else if (by_hand && !asks_for_nothing(answer.value))
    out->to_decide.push_back(said);
  else if (!answer.ours.empty() && asks_for_nothing(answer.value))
    out->off.push_back(said);
  else
    out->left_out.push_back(said);
}

const YamlNode* find_key(const YamlNode& root, const std::string& path) {
  const YamlNode* node = &root;
  for (const std::string& key : split(path, '.'))
    if ((node = node->find(key)) == nullptr) return nullptr;
  return node;
}

// In the order of the list of all keys.
void order_keys(const std::vector<OptionRow>& rows, const std::string& prefix, YamlNode* node) {
  const auto place = [&](const std::string& key) {
    const std::string path = prefix + key;
    return std::find_if(rows.begin(), rows.end(),
                        [&](const OptionRow& row) { return row.path == path; }) -
           rows.begin();
  };
  std::stable_sort(node->map.begin(), node->map.end(),
                   [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
  for (auto& [key, value] : node->map) order_keys(rows, cat(prefix, key, "."), &value);
}

constexpr const char* kDefaultOf = "default of ";

// Leaves out what was a default there and is one here.
void drop_equal(const YamlNode& ours, YamlNode* node) {
  std::erase_if(node->map, [&](auto& entry) {
    const YamlNode* usual = ours.find(entry.first);
    if (usual == nullptr) return false;
    if (entry.second.kind == YamlNode::Kind::kMap) {
      drop_equal(*usual, &entry.second);
      return entry.second.map.empty();
    }
    return entry.first != "name" && entry.second.origin.rfind(kDefaultOf, 0) == 0 &&
           says_the_same(entry.second, *usual);
  });
}

void drop_equal_defaults(const ConvertOptions& options, YamlNode* config) {
  ConfigSources sources;
  sources.algorithms = options.algorithms;
  for (const char* key : {kNameKey, "rollout.max_response_length", "rollout.samples_per_prompt"})
    if (const YamlNode* value = find_key(*config, key))
      sources.overrides.push_back(cat(key, "=", value->scalar));
  auto usual = load_config(sources);
  if (!usual.ok()) return;
  // The two sizes stand there because other defaults depend on them, not because they are usual.
  const RolloutConfig rollout;
  set_key("rollout.max_response_length", std::to_string(rollout.max_response_length), "",
          &usual->resolved);
  set_key("rollout.samples_per_prompt", std::to_string(rollout.samples_per_prompt), "",
          &usual->resolved);
  drop_equal(usual->resolved, config);
}

// A layout makes a plan, and a plan says of its calls what train.* says of a run without one: the
// two keys move into `parallel`, where they count, so that each value stands once.
void move_into_plan(YamlNode* config) {
  if (config->find("parallel") == nullptr && config->find("placement") == nullptr) return;
  YamlNode* train = config->find("train");
  if (train == nullptr) return;
  for (const char* key : {"micro_tokens", "recompute"}) {
    const YamlNode* said = train->find(key);
    if (said == nullptr) continue;
    bool recomputes = false;
    const std::string value = !parse_bool(said->scalar, &recomputes) ? said->scalar
                              : recomputes                           ? "full"
                                                                     : "none";
    set_key(cat("parallel.", key), value, said->origin, config);
    std::erase_if(train->map, [&](const auto& entry) { return entry.first == key; });
  }
  std::erase_if(config->map, [](const auto& entry) {
    return entry.first == "train" && entry.second.map.empty();
  });
}

// What a run needs and the source does not say.
void note_missing(const ConvertOptions& options, Conversion* out) {
  const auto lacks = [&](const char* key) { return find_key(out->config, key) == nullptr; };
  const YamlNode* name = find_key(out->config, kNameKey);
  const std::string algorithm = name == nullptr ? "" : name->scalar;
  const std::vector<std::string> without_rewards = {"sft", "rm", "dpo", "kto", "orpo", "distill"};
  const std::vector<std::string> without_generation = {"sft", "rm", "dpo", "kto", "orpo"};
  constexpr const char* kLongest = "rollout.max_response_length";
  if (options.framework == "openrlhf" && lacks(kLongest) &&
      !contains(without_generation, algorithm))
    out->to_decide.push_back(
        {"", "",
         cat(kLongest,
             ": OpenRLHF takes what the prompt leaves of data.max_len (2048 where nothing "
             "is said); a run of Braid has one number for all, and 128 without it")});
  for (const char* key : {"model.path", "data.train", "reward"})
    if (lacks(key) && (key != std::string("reward") || !contains(without_rewards, algorithm)))
      out->missing.push_back(key);
  if (lacks("model.path"))
    out->to_decide.push_back({"", "", "model.path: no key names the model's folder"});
  const auto asked = [&](const std::string& begin) {
    return std::any_of(out->to_decide.begin(), out->to_decide.end(),
                       [&](const Note& note) { return note.why.starts_with(begin); });
  };
  if (lacks("data.train") && !asked("data.train: "))
    out->to_decide.push_back({"", "", "data.train: no key names the data"});
  if (lacks("reward") && !asked("reward: ") && !contains(without_rewards, algorithm))
    out->to_decide.push_back(
        {"", "", "reward: no key says what scores a response; docs/rewards.md has the kinds"});
}

// The stated keys and the framework's defaults as one tree; each origin is what a comment says.
YamlNode source_tree(const ForeignKeys& stated, const ConvertOptions& options,
                     const std::string& algorithm) {
  YamlNode root;
  root.kind = YamlNode::Kind::kMap;
  if (options.framework == "trl" || !options.algorithm.empty())
    set_key(kNameKey, algorithm, "--algorithm", &root);
  for (const auto& [key, value] : stated)
    if (!is_of_hydra(key)) set_key(key, value, key, &root);
  for (const auto& [key, value] : foreign_defaults(options.framework, algorithm))
    if (find_key(root, key) == nullptr)
      set_key(key, value, cat(kDefaultOf, options.framework, ": ", key), &root);
  return root;
}

void set_all_origins(const std::string& path, YamlNode* node) {
  if (node->origin.rfind(kDefaultOf, 0) != 0 && !path.empty()) node->origin = path;
  for (auto& [key, value] : node->map)
    set_all_origins(path.empty() ? key : cat(path, ".", key), &value);
}

// OpenRLHF has older names of the same keys: a default gives way to either.
bool is_said_otherwise(const KeyAnswer& answer, const std::vector<KeyAnswer>& all) {
  return std::any_of(all.begin(), all.end(), [&](const KeyAnswer& other) {
    return other.origin.rfind(kDefaultOf, 0) != 0 && other.entry != nullptr &&
           !other.ours.empty() && other.ours == answer.ours;
  });
}

std::string algorithm_of_keys(const ForeignKeys& keys, const ConvertOptions& options) {
  YamlNode root;
  root.kind = YamlNode::Kind::kMap;
  for (const auto& [key, value] : keys)
    if (!is_of_hydra(key)) set_key(key, value, key, &root);
  for (const KeyAnswer& answer :
       answer_keys(root, "", {root, options.algorithms, options.framework}))
    for (const std::string& line : lines_of_answer(answer))
      if (answer.ours == kNameKey && line.rfind(cat(kNameKey, ": "), 0) == 0)
        return line.substr(std::string(kNameKey).size() + 2);
  return "ppo";
}

}  // namespace

Result<ForeignKeys> trl_configuration(const std::string& text, const std::string& where) {
  if (where.ends_with(".py") || where.ends_with(".sh") || text.starts_with("#!"))
    return invalid_input(cat(where,
                             ": scripts of TRL are not read; let the script write its keys with "
                             "open(\"args.json\", \"w\").write(args.to_json_string()), and name "
                             "args.json instead (docs/from_trl.md)"));
  return yaml_keys(text, where);
}

Result<Conversion> convert_config(const ForeignKeys& keys, const ConvertOptions& options) {
  if (key_owners(options.framework).empty())
    return invalid_input(cat("'", options.framework, "' is no framework whose configurations are ",
                             "converted; known: trl, verl, openrlhf"));
  const ForeignKeys stated = resolved(keys);
  std::string algorithm = options.algorithm;
  if (algorithm.empty() && options.framework == "trl") {
    BRAID_ASSIGN(algorithm, trainer_of(stated));
  }
  if (algorithm.empty()) algorithm = algorithm_of_keys(stated, options);
  YamlNode root = source_tree(stated, options, algorithm);
  set_all_origins("", &root);
  Conversion out;
  Merger merger(&out);
  std::vector<KeyAnswer> answers =
      answer_keys(root, "", {root, options.algorithms, options.framework});
  std::erase_if(answers, [](const KeyAnswer& answer) { return answer.path == kNameKey; });
  for (const bool now : {true, false}) {
    for (const KeyAnswer& answer : answers) {
      const bool is_stated = answer.origin.rfind(kDefaultOf, 0) != 0;
      if (is_stated != now) continue;
      const std::vector<std::string> lines = lines_of_answer(answer);
      if (!is_stated && options.framework == "openrlhf" && is_said_otherwise(answer, answers))
        continue;
      for (const std::string& line : lines) merger.put(line, answer, is_stated);
      const bool ruled = answer.advice.kind == ForeignAdvice::Kind::kRule;
      if (lines.empty() && (is_stated || (ruled && find_key(out.config, answer.ours) == nullptr)))
        note(answer, &out);
    }
    const bool named = options.framework == "trl" || !options.algorithm.empty();
    if (!now || !named) continue;
    KeyAnswer name;  // before defaults: a loss may have said it
    name.origin = options.algorithm.empty() ? "as its keys say" : "--algorithm";
    merger.put(cat(kNameKey, ": ", algorithm), name, false);
  }
  note_missing(options, &out);
  drop_equal_defaults(options, &out.config);
  move_into_plan(&out.config);
  order_keys(option_rows(), "", &out.config);
  return out;
}

std::string conversion_text(const Conversion& conversion, const ConvertOptions& options,
                            const std::string& source) {
  std::string out =
      cat("# From ", options.framework, ": ", source, ". Behind each value stands the ",
          "key that it comes from; what\n# became of the others is said below.\n",
          yaml_text(conversion.config, true));
  const auto part = [&](const char* title, const std::vector<Note>& notes) {
    if (notes.empty()) return;
    out += cat("\n# ", title, "\n");
    for (const Note& note : notes) {
      const std::string key = note.key.empty() ? "" : cat(note.key, "=", note.value);
      const char* between = key.empty() || note.why.empty() ? "" : " -> ";
      out += cat("#   ", key, between, note.why, "\n");
    }
  };
  part("To decide: the source does not say enough, or says two things.", conversion.to_decide);
  part("Off there: nothing to write here.", conversion.off);
  part("Left out: nothing here takes the place of the key or of its value.", conversion.left_out);
  part("Unknown: no such key is known here.", conversion.unknown);
  return out;
}

std::string conversion_end(const Conversion& conversion) {
  const auto& [config, to_decide, off, left_out, unknown, missing] = conversion;
  const auto is_missing = [&](const Note& note) {
    return std::any_of(missing.begin(), missing.end(),
                       [&](const std::string& key) { return note.why.starts_with(key + ": "); });
  };
  const auto others = std::count_if(to_decide.begin(), to_decide.end(), std::not_fn(is_missing));
  const std::string more = others == 1 ? "1 remark" : cat(others, " remarks");
  if (!missing.empty())
    return cat("to decide before a run: ", join(missing, ", "),
               others == 0 ? "" : cat("; and ", more, " under \"To decide\""));
  return others == 0 ? std::string("nothing is left to decide")
                     : cat("no key is missing; ", more, " under \"To decide\"");
}

std::vector<std::string> conversion_warnings(const Conversion& conversion) {
  std::vector<std::string> out;
  for (const Note& note : conversion.to_decide)
    out.push_back(cat("to decide: ", note.key.empty() ? "" : cat(note.key, "=", note.value, " -> "),
                      note.why));
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const Note& note : conversion.left_out) by_reason[note.why].push_back(note.key);
  for (const auto& [why, names] : by_reason)
    out.push_back(cat("left out: ", join(names, ", "), " (", why, ")"));
  for (const Note& note : conversion.unknown)
    out.push_back(cat("unknown key: ", note.key, "=", note.value));
  return out;
}

}  // namespace braid::inline foreign
