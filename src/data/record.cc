#include "data/record.h"

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "data/chat/render_messages.h"

namespace braid {
namespace {

constexpr const char* kTemplatePlace = "{prompt}";

Result<std::vector<int32_t>> ids_of(const Json& list, const std::string& key) {
  std::vector<int32_t> out;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      return invalid_input(cat("key '", key, "': ", id.dump(), " is no token id"));
    out.push_back(id.get<int32_t>());
  }
  return out;
}

Status need_tokenizer(const Tokenizer* tokenizer, const std::string& key) {
  if (tokenizer != nullptr) return ok_status();
  return invalid_input(
      cat("key '", key, "' is text, but there is no tokenizer; set tokenizer.path or give ids"));
}

std::string keys_of(const Json& line) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.push_back(key);
  return join(keys, ", ");
}

bool is_conversation(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

std::string filled_template(const DataConfig& config, const std::string& prompt) {
  std::string text = config.prompt_template;
  const size_t place = text.find(kTemplatePlace);
  return text.empty() ? prompt : text.replace(place, std::string(kTemplatePlace).size(), prompt);
}

// Sets prompt and prompt_ids from a conversation; the text is what the model will see.
Status set_conversation(const Json& messages, const Tokenizer* tokenizer, const std::string& key,
                        DataRecord& record) {
  BRAID_TRY(need_tokenizer(tokenizer, key));
  BRAID_ASSIGN(record.prompt_ids, render_messages(*tokenizer, messages, true));
  BRAID_ASSIGN(record.prompt, tokenizer->decode(record.prompt_ids, false));
  record.messages = messages;
  return ok_status();
}

Status set_prompt_text(const std::string& text, const Tokenizer* tokenizer,
                       const DataConfig& config, DataRecord& record) {
  BRAID_TRY(need_tokenizer(tokenizer, config.prompt_key));
  record.prompt = filled_template(config, text);
  if (config.prompt_format == "chat")
    return set_conversation(Json::array({{{"role", "user"}, {"content", record.prompt}}}),
                            tokenizer, config.prompt_key, record);
  BRAID_ASSIGN(record.prompt_ids, tokenizer->encode(record.prompt, true));
  return ok_status();
}

// The field of a line that holds the prompt.
std::string prompt_field(const Json& line, const DataConfig& config) {
  if (line.contains("ids")) return "ids";
  return line.contains("messages") && !line.contains(config.prompt_key) ? "messages"
                                                                        : config.prompt_key;
}

Status set_prompt(const Json& line, const std::string& key, const Tokenizer* tokenizer,
                  const DataConfig& config, DataRecord& record) {
  const auto found = line.find(key);
  if (found == line.end())
    return invalid_input(
        cat("missing key '", key, "' (data.prompt_key); keys here: ", keys_of(line)));
  if (is_conversation(*found)) {
    BRAID_TRY(set_conversation(*found, tokenizer, key, record));
  } else if (found->is_array()) {
    BRAID_ASSIGN(record.prompt_ids, ids_of(*found, key));
    const auto text = line.find(config.prompt_key);
    if (text != line.end() && text->is_string()) record.prompt = *text;
  } else if (found->is_string() && key != "ids" && key != "messages") {
    BRAID_TRY(set_prompt_text(found->get<std::string>(), tokenizer, config, record));
  } else {
    return invalid_input(cat("key '", key, "' must be text, a list of ids or of messages, not ",
                             found->type_name()));
  }
  return record.prompt_ids.empty() ? invalid_input("the prompt is empty") : ok_status();
}

// Ids of line[key]; text ends in the end-of-sequence token.
Result<std::vector<int32_t>> response_ids(const Json& line, const std::string& key,
                                          const Tokenizer* tokenizer) {
  const auto found = line.find(key);
  if (found == line.end())
    return invalid_input(cat("missing key '", key, "'; keys here: ", keys_of(line)));
  std::vector<int32_t> ids;
  if (found->is_array()) {
    BRAID_ASSIGN(ids, ids_of(*found, key));
  } else if (found->is_string()) {
    BRAID_TRY(need_tokenizer(tokenizer, key));
    BRAID_ASSIGN(ids, tokenizer->encode(found->get<std::string>(), false));
    if (tokenizer->eos_id()) ids.push_back(*tokenizer->eos_id());
  } else {
    return invalid_input(
        cat("key '", key, "' must be text or a list of ids, not ", found->type_name()));
  }
  if (ids.empty()) return invalid_input(cat("key '", key, "' is empty"));
  return ids;
}

// A conversation that ends with the assistant's message: that is the response.
Status split_conversation(const Json& messages, const Tokenizer* tokenizer, DataRecord& record) {
  BRAID_TRY(need_tokenizer(tokenizer, "messages"));
  if (!is_conversation(messages) || messages.size() < 2 ||
      messages.back().value("role", "") != "assistant")
    return invalid_input(
        "key 'messages' must end with the assistant's message, which is the response to learn");
  Json question = messages;
  question.erase(question.size() - 1);
  BRAID_TRY(set_conversation(question, tokenizer, "messages", record));
  BRAID_ASSIGN(const std::vector<int32_t> all, render_messages(*tokenizer, messages, false));
  const size_t border = record.prompt_ids.size();
  if (all.size() <= border ||
      !std::equal(record.prompt_ids.begin(), record.prompt_ids.end(), all.begin()))
    return invalid_input(
        "key 'messages': the template writes the prompt differently when an answer follows; "
        "give 'prompt' and 'response'");
  record.response_ids.assign(all.begin() + static_cast<int64_t>(border), all.end());
  return ok_status();
}

}  // namespace

Result<DataRecord> make_record(const Json& line, DataNeed need, const Tokenizer* tokenizer,
                               const DataConfig& config) {
  if (!line.is_object()) return invalid_input("a line must be a JSON object");
  DataRecord record;
  const std::string key = prompt_field(line, config);
  const std::string answer = line.contains("response") ? "response" : config.label_key;
  if (need == DataNeed::kSamples && key == "messages" && !line.contains(answer)) {
    BRAID_TRY(split_conversation(line[key], tokenizer, record));
  } else {
    BRAID_TRY(set_prompt(line, key, tokenizer, config, record));
    if (need == DataNeed::kSamples) {
      BRAID_ASSIGN(record.response_ids, response_ids(line, answer, tokenizer));
    }
  }
  if (need == DataNeed::kPairs) {
    BRAID_ASSIGN(record.response_ids, response_ids(line, "chosen", tokenizer));
    BRAID_ASSIGN(record.rejected_ids, response_ids(line, "rejected", tokenizer));
  }
  for (const auto& [name, value] : line.items())
    if (name != key) record.extra[name == config.label_key ? "label" : name] = value;
  return record;
}

}  // namespace braid
