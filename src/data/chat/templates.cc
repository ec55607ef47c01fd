#include "data/chat/templates.h"

#include <algorithm>

#include "base/text.h"
#include "host/file.h"

namespace braid::inline data {
namespace {

constexpr const char* kDefault = "default";
constexpr const char* kDefaultFile = "chat_template.jinja";
constexpr const char* kToolUse = "tool_use";
constexpr std::string_view kEnding = ".jinja";

bool ends_with(const std::string& text, std::string_view ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

// A special token is a text, or an object with the text in "content".
std::string special_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return "";
}

}  // namespace

Result<ChatTemplates> ChatTemplates::load(const std::string& folder, const Json& config,
                                          const Json& map) {
  ChatTemplates out;
  BRAID_TRY(out.add_files(folder));
  if (out.templates_.empty() && config.is_object() && config.contains("chat_template"))
    BRAID_TRY(out.add_named(config["chat_template"]).at("tokenizer_config.json"));
  out.add_special_tokens(config, map);
  return out;
}

void ChatTemplates::add(const std::string& name, const std::string& source) {
  templates_.emplace(name, jinja::Template::parse(name, source));
}

Result<std::vector<std::string>> ChatTemplates::files(const std::string& folder) {
  std::vector<std::string> out;
  const std::string single = join_path(folder, kDefaultFile);
  if (path_exists(single)) out.push_back(single);
  const std::string more = join_path(folder, "additional_chat_templates");
  if (!is_folder(more)) return out;
  BRAID_ASSIGN(const std::vector<std::string> names, list_folder(more));
  for (const std::string& name : names)
    if (ends_with(name, kEnding)) out.push_back(join_path(more, name));
  return out;
}

Status ChatTemplates::add_files(const std::string& folder) {
  BRAID_ASSIGN(const std::vector<std::string> paths, files(folder));
  for (const std::string& path : paths) {
    BRAID_ASSIGN(const std::string source, read_file(path));
    const std::string file = path.substr(path.rfind('/') + 1);
    add(path == join_path(folder, kDefaultFile) ? kDefault
                                                : file.substr(0, file.size() - kEnding.size()),
        source);
  }
  return ok_status();
}

Status ChatTemplates::add_named(const Json& config) {
  if (config.is_null()) return ok_status();
  if (config.is_string()) {
    add(kDefault, config.get<std::string>());
    return ok_status();
  }
  if (!config.is_array())
    return invalid_input("chat_template is neither a text nor a list of named templates");
  for (const Json& named : config) {
    if (!named.is_object()) return invalid_input("chat_template: an entry is no object");
    BRAID_ASSIGN(const std::string name,
                 json_field<std::string>(named, "name").at("chat_template"));
    BRAID_ASSIGN(const std::string source,
                 json_field<std::string>(named, "template").at("chat_template"));
    add(name, source);
  }
  return ok_status();
}

void ChatTemplates::add_special_tokens(const Json& config, const Json& map) {
  for (const Json* source : {&config, &map}) {
    if (!source->is_object()) continue;
    for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                             "cls_token", "mask_token"}) {
      const std::string text = source->contains(name) ? special_text((*source)[name]) : "";
      if (!text.empty()) special_tokens_.emplace(name, text);
    }
    const auto extra = source->find("extra_special_tokens");
    if (extra == source->end() || !extra->is_object()) continue;
    for (const auto& [name, value] : extra->items())
      if (!special_text(value).empty()) special_tokens_.emplace(name, special_text(value));
  }
}

Result<jinja::Template> ChatTemplates::choose(const std::string& name, bool has_tools) const {
  if (templates_.empty())
    return invalid_input(
        "messages need a chat template, but the tokenizer has none; put a chat_template.jinja "
        "beside "
        "its tokenizer.json");
  std::string wanted = name;
  if (wanted.empty()) wanted = has_tools && templates_.count(kToolUse) != 0 ? kToolUse : kDefault;
  const auto found = templates_.find(wanted);
  if (found != templates_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, parsed] : templates_) names.push_back(known);
  return invalid_input(cat("the tokenizer has no chat template '", wanted,
                           "'; data.template_name can be: ", join(names, ", ")));
}

}  // namespace braid::inline data
