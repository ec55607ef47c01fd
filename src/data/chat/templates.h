// The chat templates that come with a tokenizer: programs in Jinja that write a conversation as the
// text that the model was trained on. Immutable and thread-safe after loading.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "jinja/template.h"

namespace braid::inline data {

class ChatTemplates {
 public:
  // Of a tokenizer's folder: chat_template.jinja and additional_chat_templates/NAME.jinja, or where
  // there are none the key chat_template of tokenizer_config.json (`config`), a text or a list of
  // templates with names. Special tokens come from there or from special_tokens_map.json (`map`). A
  // broken template is an error only when it is asked for.
  static Result<ChatTemplates> load(const std::string& folder, const Json& config, const Json& map);

  // The files of templates there.
  static Result<std::vector<std::string>> files(const std::string& folder);

  // The template of this name; for "" the one called tool_use where there are tools and there is
  // one, otherwise the one called default. Errors list the names.
  Result<jinja::Template> choose(const std::string& name, bool has_tools) const;

  // bos_token, eos_token and the other special tokens by the names that templates use.
  const std::map<std::string, std::string>& special_tokens() const { return special_tokens_; }

 private:
  void add(const std::string& name, const std::string& source);
  Status add_files(const std::string& folder);
  Status add_named(const Json& config);
  void add_special_tokens(const Json& config, const Json& map);

  std::map<std::string, Result<jinja::Template>> templates_;
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace braid::inline data
