#include "identity/run_identity.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/text.h"
#include "config/binder.h"
#include "config/reference.h"

namespace braid::inline identity {
namespace {

constexpr const char* kDateKey = "data.template_date";
// Of no use without the rest of a run: rewards, and sections with several forms.
constexpr const char* kUnread[] = {"reward[",  "cluster", "placement",
                                   "parallel", "plan.",   "workload."};

// What is declared of a key; of one that is not known nothing.
KeyFacts declared(const std::string& key) {
  const KeyFacts* facts = facts_of(key);
  return facts == nullptr ? KeyFacts() : *facts;
}

void flatten(const YamlNode& node, const std::string& key, Json& out) {
  if (node.kind == YamlNode::Kind::kScalar) {
    if (!declared(key).secret) out[key] = node.scalar;
  }
  for (const auto& [name, child] : node.map)
    flatten(child, key.empty() ? name : cat(key, ".", name), out);
  for (size_t i = 0; i < node.list.size(); ++i) flatten(node.list[i], cat(key, "[", i, "]"), out);
}

// The node of a dotted key such as "lora.targets[1]", made where there is none.
YamlNode& node_at(YamlNode& root, const std::string& key) {
  YamlNode* node = &root;
  for (size_t begin = 0; begin < key.size();) {
    const bool entry = key[begin] == '[';
    const size_t end = std::min(key.find_first_of(".[", begin + 1), key.size());
    if (entry) {
      const auto index = static_cast<size_t>(std::stoul(key.substr(begin + 1)));
      node->kind = YamlNode::Kind::kList;
      if (node->list.size() <= index) node->list.resize(index + 1);
      node = &node->list[index];
    } else {
      const std::string name = key.substr(begin, end - begin);
      node->kind = YamlNode::Kind::kMap;
      if (node->find(name) == nullptr) node->map.emplace_back(name, YamlNode());
      node = node->find(name);
    }
    begin = end < key.size() && key[end] == '.' ? end + 1 : end;
  }
  return *node;
}

// The file or folder that a value of this key names (or a pattern of names within a folder), by the
// one path that does not depend on the spelling; "" where it names none.
std::string file_of(const std::string& key, const std::string& value) {
  std::error_code error;
  if (!declared(key).file || value.empty()) return "";
  const auto path = std::filesystem::canonical(value, error);
  if (!error) return path.string();
  const std::filesystem::path given = value;
  const std::string name = given.filename().string();
  if (name.find_first_of("*?[") == std::string::npos) return "";
  const auto folder = std::filesystem::canonical(
      given.has_parent_path() ? given.parent_path() : std::filesystem::path("."), error);
  return error ? "" : (folder / name).string();
}

bool is_allowed(const std::string& key, const std::vector<std::string>& allowed) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return key == one || key.rfind(one + ".", 0) == 0 || key.rfind(one + "[", 0) == 0;
  });
}

// "KEY was A, is B" for a key that differs; an entry of a list may be on one side only.
void note_difference(const std::string& key, const Json& saved, const Json& now,
                     std::vector<std::string>& out) {
  const bool list = key.find('[') != std::string::npos;
  const auto unstated = [&](const Json& from) { return from.value(key, std::string()).empty(); };
  if (key == kDateKey && (unstated(saved) || unstated(now))) return;  // the run decides it
  if (declared(key).free_on_resume || (!list && (!saved.contains(key) || !now.contains(key))))
    return;
  const auto text = [&](const Json& from) {
    return from.contains(key) ? "'" + from[key].get<std::string>() + "'" : "absent";
  };
  if (text(saved) != text(now)) out.push_back(cat(key, " was ", text(saved), ", is ", text(now)));
}

}  // namespace

Json flat_options(const Config& config) {
  Config copy = config;
  Json out = Json::object();
  flatten(OptionPrinter::print(copy, nullptr), "", out);
  return out;
}

Result<Config> config_of(const Json& options) {
  YamlNode root;
  for (const auto& item : options.items()) {
    const std::string& key = item.key();
    const auto begins = [&](const char* group) { return key.rfind(group, 0) == 0; };
    if (std::any_of(std::begin(kUnread), std::end(kUnread), begins)) continue;
    BRAID_ASSIGN(const auto text, json_field<std::string>(options, key));
    node_at(root, key) = YamlNode(YamlNode::Kind::kScalar, text, false, key);
  }
  Config config;
  BRAID_TRY(OptionReader::read(root, "", config));
  return config;
}

Json option_files(const Json& options) {
  Json out = Json::object();
  for (const auto& [key, value] : options.items())
    if (const std::string file = file_of(key, value.get<std::string>()); !file.empty())
      out[key] = file;
  return out;
}

std::string saved_date(const Json& options) {
  return options.is_object() ? options.value(kDateKey, std::string()) : "";
}

Status check_allowed_keys(const std::vector<std::string>& allowed, const Json& options) {
  std::vector<std::string> known;
  for (const auto& item : options.items()) known.push_back(item.key());
  for (const std::string& key : allowed)
    if (std::none_of(known.begin(), known.end(),
                     [&](const std::string& name) { return is_allowed(name, {key}); }))
      return invalid_input(
          cat("checkpoint.allow: '", key, "' is no key", did_you_mean(key, known)));
  return ok_status();
}

Status check_same_options(const Json& saved, const Json& saved_files, const Json& now,
                          const std::vector<std::string>& allowed) {
  std::vector<std::string> differences;
  const Json files = option_files(now);
  const auto note = [&](const std::string& key) {
    const bool same_file =
        saved_files.contains(key) && files.contains(key) && saved_files[key] == files[key];
    if (!same_file && !is_allowed(key, allowed)) note_difference(key, saved, now, differences);
  };
  for (const auto& item : saved.items()) note(item.key());
  for (const auto& item : now.items())
    if (!saved.contains(item.key())) note(item.key());
  if (differences.empty()) return ok_status();
  const size_t count = differences.size();
  if (count > 5) differences.resize(5);
  return invalid_input(cat("the checkpoint is of a run with other options: ",
                           join(differences, "; "), count > 5 ? "; ..." : "",
                           " (put them back, let them change with checkpoint.allow=[KEY], or begin "
                           "a new run from the exported model under another run.name)"));
}

Json data_identity(const DataSet& data, const std::string& sha256) {
  return {{"records", data.size()},
          {"lines_sha256", data.lines_sha256()},
          {"sha256", sha256.empty() ? Json() : Json(sha256)}};
}

Status changed_data() {
  return invalid_input(
      "data.train: a line, or the token ids that one becomes, is not what it was when the "
      "checkpoint was written; put the data (and the tokenizer) back, let them change with "
      "checkpoint.allow=[data.train], or begin a new run from the exported model under another "
      "run.name (a chat template that writes the date sees data.template_date)");
}

Status check_same_data(const Json& saved, const Json& now) {
  if (saved.value("records", Json()) != now["records"])
    return invalid_input(cat("data.train: has ", now["records"], " records now, ",
                             saved.value("records", Json()),
                             " when the checkpoint was written; the data position would be lost"));
  for (const char* name : {"lines_sha256", "sha256"}) {
    const Json then = saved.value(name, Json());
    if (then.is_string() && now[name].is_string() && then != now[name]) return changed_data();
  }
  return ok_status();
}

Json run_identity(const Config& config, const Program& program, Json data) {
  const Json options = flat_options(config);
  // The graph's own program: another plan, in which the calls may stand otherwise, may continue a
  // run.
  const bool ahead = steps_ahead(program.graph) > 0;
  const Graph graph = ahead ? ordered_by_name(program.graph) : program.graph;
  return {{"program", program_hash(*compile(graph))},
          {"options", options},
          {"files", option_files(options)},
          {"data", std::move(data)}};
}

Status check_same_run(const Json& saved, const Json& now, const std::vector<std::string>& allowed) {
  BRAID_ASSIGN(const Json options, json_field<Json>(saved, "options"));
  BRAID_TRY(
      check_same_options(options, saved.value("files", Json::object()), now["options"], allowed));
  BRAID_ASSIGN(const auto program, json_field<std::string>(saved, "program"));
  if (now["program"] != program)
    return invalid_input(cat("the checkpoint is of another program (", program, ", this run has ",
                             now["program"].get<std::string>(), "; compare with --print-program)"));
  BRAID_ASSIGN(const Json data, json_field<Json>(saved, "data"));
  if (is_allowed("data.train", allowed)) return ok_status();
  return check_same_data(data, now["data"]);
}

std::string data_sha256_to_compare(const Json& saved, const Json& now,
                                   const std::vector<std::string>& allowed) {
  const Json then = saved["data"].value("sha256", Json());
  const bool known = now["data"]["sha256"].is_string();
  return then.is_string() && !known && !is_allowed("data.train", allowed) ? then.get<std::string>()
                                                                          : "";
}

}  // namespace braid::inline identity
