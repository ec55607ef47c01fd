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

std::string filled_template(const DataConfig& config, const std::string& prompt) {
  std::string text = config.prompt_template;
  const size_t place = text.find(kTemplatePlace);
  return text.empty() ? prompt : text.replace(place, std::string(kTemplatePlace).size(), prompt);
}

// Sets prompt and prompt_ids from a conversation; the text is what the model will see.
Status set_conversation(const Json& messages, const Tokenizer* tokenizer, const std::string& key,
                        DataRecord& record) {
  BRAID_TRY(need_tokenizer(tokenizer, key));
  record.conversation = messages;
  BRAID_ASSIGN(record.prompt_ids, render_messages(*tokenizer, messages, true));
  BRAID_ASSIGN(record.prompt, tokenizer->decode(record.prompt_ids, false));
  return ok_status();
}

Status set_prompt_text(const std::string& text, const std::string& key, const Tokenizer* tokenizer,
                       const DataConfig& config, DataRecord& record) {
  BRAID_TRY(need_tokenizer(tokenizer, key));
  record.prompt = filled_template(config, text);
  if (config.prompt_format == "chat")
    return set_conversation(Json::array({{{"role", "user"}, {"content", record.prompt}}}),
                            tokenizer, key, record);
  BRAID_ASSIGN(record.prompt_ids, tokenizer->encode(record.prompt, true));
  return ok_status();
}

Status set_prompt(const Json& row, const std::string& key, const Tokenizer* tokenizer,
                  const DataConfig& config, DataRecord& record) {
  const Json& value = *find_column(row, key);
  if (is_conversation(value)) {
    BRAID_TRY(set_conversation(value, tokenizer, key, record));
  } else if (value.is_array()) {
    BRAID_ASSIGN(record.prompt_ids, ids_of(value, key));
    const Json* text = find_column(row, config.prompt_key);
    if (text != nullptr && text->is_string()) record.prompt = *text;
  } else if (value.is_string() && key != "ids" && key != "messages") {
    BRAID_TRY(set_prompt_text(value.get<std::string>(), key, tokenizer, config, record));
  } else {
    return invalid_input(
        cat("key '", key, "' must be text, a list of ids or of messages, not ", value.type_name()));
  }
  return record.prompt_ids.empty() ? invalid_input("the prompt is empty") : ok_status();
}

// Ids of an answer that is text, which ends in the end-of-sequence token.
Result<std::vector<int32_t>> text_answer(const std::string& text, const std::string& key,
                                         const Tokenizer* tokenizer) {
  BRAID_TRY(need_tokenizer(tokenizer, key));
  BRAID_ASSIGN(std::vector<int32_t> ids, tokenizer->encode(text, false));
  if (tokenizer->eos_id()) ids.push_back(*tokenizer->eos_id());
  return ids;
}

// What the messages of an answer add to the ids of the conversation before them.
Result<std::vector<int32_t>> spoken_answer(const Json& answer, const std::string& key,
                                           const Tokenizer& tokenizer, const DataRecord& record) {
  if (record.conversation.is_null())
    return invalid_input(
        cat("key '", key, "' is a conversation, so the prompt must be one too, not text or ids"));
  Json messages = record.conversation;
  for (const Json& message : answer) messages.push_back(message);
  BRAID_ASSIGN(const std::vector<int32_t> all, render_messages(tokenizer, messages, false));
  const auto& prompt = record.prompt_ids;
  if (all.size() <= prompt.size() || !std::equal(prompt.begin(), prompt.end(), all.begin()))
    return invalid_input(
        cat("key '", key,
            "': the template writes the prompt differently when an answer follows; give 'prompt' "
            "and 'response'"));
  return std::vector<int32_t>(all.begin() + static_cast<int64_t>(prompt.size()), all.end());
}

// Ids of an answer to record's prompt: text, ids or messages.
Result<std::vector<int32_t>> answer_ids(const Json& value, const std::string& key,
                                        const Tokenizer* tokenizer, const DataRecord& record) {
  std::vector<int32_t> ids;
  if (is_conversation(value)) {
    BRAID_TRY(need_tokenizer(tokenizer, key));
    BRAID_ASSIGN(ids, spoken_answer(value, key, *tokenizer, record));
  } else if (value.is_array()) {
    BRAID_ASSIGN(ids, ids_of(value, key));
  } else if (value.is_string()) {
    BRAID_ASSIGN(ids, text_answer(value.get<std::string>(), key, tokenizer));
  } else {
    return invalid_input(
        cat("key '", key, "' must be text or a list of ids, not ", value.type_name()));
  }
  if (ids.empty()) return invalid_input(cat("key '", key, "' is empty"));
  return ids;
}

// messages[begin, end).
Json messages_between(const Json& messages, size_t begin, size_t end) {
  Json out = Json::array();
  for (size_t i = begin; i < end; ++i) out.push_back(messages[i]);
  return out;
}

// Messages: the assistant's last one is the answer, what is before it the prompt.
Status set_messages(const Json& messages, DataNeed need, const Tokenizer* tokenizer,
                    DataRecord& record) {
  const bool answered = ends_with_assistant(messages) && messages.size() > 1;
  if (need == DataNeed::kSamples && !answered)
    return invalid_input(
        "key 'messages' must end with the assistant's message, which is the response to learn");
  const size_t border = messages.size() - (answered ? 1 : 0);
  BRAID_TRY(set_conversation(messages_between(messages, 0, border), tokenizer, "messages", record));
  if (record.prompt_ids.empty()) return invalid_input("the prompt is empty");
  if (need != DataNeed::kSamples) return ok_status();
  BRAID_ASSIGN(record.response_ids,
               spoken_answer(messages_between(messages, border, messages.size()), "messages",
                             *tokenizer, record));
  return ok_status();
}

// The whole of a text: its first token is the prompt, since nothing predicts it.
Status set_text(const Json& row, const Tokenizer* tokenizer, DataRecord& record) {
  const Json& value = row["text"];
  if (!value.is_string())
    return invalid_input(cat("key 'text' must be text, not ", value.type_name()));
  BRAID_TRY(need_tokenizer(tokenizer, "text"));
  BRAID_ASSIGN(std::vector<int32_t> ids, tokenizer->encode(value.get<std::string>(), true));
  if (tokenizer->eos_id() && (ids.empty() || ids.back() != *tokenizer->eos_id()))
    ids.push_back(*tokenizer->eos_id());
  if (ids.size() < 2) return invalid_input("key 'text' has nothing to learn");
  record.prompt_ids.assign(ids.begin(), ids.begin() + 1);
  record.response_ids.assign(ids.begin() + 1, ids.end());
  BRAID_ASSIGN(record.prompt, tokenizer->decode(record.prompt_ids, false));
  return ok_status();
}

// Bytes that both texts begin with: whole characters, without a blank at the end (as TRL's
// extract_prompt cuts them).
size_t common_text(const std::string& a, const std::string& b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < limit && a[same] == b[same]) ++same;
  while (same > 0 && same < a.size() && (static_cast<uint8_t>(a[same]) & 0xC0) == 0x80) --same;
  return same > 0 && a[same - 1] == ' ' ? same - 1 : same;
}

size_t common_messages(const Json& a, const Json& b) {
  size_t same = 0;
  while (same < std::min(a.size(), b.size()) && a[same] == b[same]) ++same;
  return same;
}

// Two answers that begin alike: that beginning is the prompt.
Status set_implicit_pair(const Json& chosen, const Json& rejected, const Tokenizer* tokenizer,
                         DataRecord& record) {
  const bool spoken = is_conversation(chosen) && is_conversation(rejected);
  if (!spoken && !(chosen.is_string() && rejected.is_string()))
    return invalid_input(
        "without a 'prompt', 'chosen' and 'rejected' must both be text or both conversations");
  if (chosen == rejected) return invalid_input("'chosen' and 'rejected' are the same");
  BRAID_TRY(need_tokenizer(tokenizer, "chosen"));
  Json prompt, better, worse;
  if (spoken) {
    const size_t same = common_messages(chosen, rejected);
    prompt = messages_between(chosen, 0, same);
    better = messages_between(chosen, same, chosen.size());
    worse = messages_between(rejected, same, rejected.size());
  } else {
    const std::string &good = chosen.get_ref<const std::string&>(),
                      &bad = rejected.get_ref<const std::string&>();
    const size_t same = common_text(good, bad);
    prompt = good.substr(0, same), better = good.substr(same), worse = bad.substr(same);
  }
  if (prompt.empty() || prompt == "")
    return invalid_input(
        "there is no 'prompt', and 'chosen' and 'rejected' do not begin alike either");
  BRAID_TRY(set_prompt({{"prompt", prompt}}, "prompt", tokenizer, {}, record));
  BRAID_ASSIGN(record.response_ids, answer_ids(better, "chosen", tokenizer, record));
  BRAID_ASSIGN(record.rejected_ids, answer_ids(worse, "rejected", tokenizer, record));
  return ok_status();
}

Status set_columns(const Json& row, const RowColumns& columns, const Tokenizer* tokenizer,
                   const DataConfig& config, DataRecord& record) {
  BRAID_TRY(set_prompt(row, columns.prompt, tokenizer, config, record));
  if (!columns.answer.empty()) {
    BRAID_ASSIGN(record.response_ids,
                 answer_ids(*find_column(row, columns.answer), columns.answer, tokenizer, record));
  }
  if (!columns.rejected.empty()) {
    BRAID_ASSIGN(record.rejected_ids, answer_ids(*find_column(row, columns.rejected),
                                                 columns.rejected, tokenizer, record));
  }
  return ok_status();
}

// The other columns; the label stands under its own name and as "label".
void set_extra(const Json& row, const RowColumns& columns, DataRecord& record) {
  for (const auto& [name, value] : row.items())
    if (name != columns.prompt) record.extra[name] = value;
  if (!columns.label.empty()) record.extra["label"] = *find_column(row, columns.label);
}

}  // namespace

Result<DataRecord> make_record(const Json& row, DataNeed need, const Tokenizer* tokenizer,
                               const DataConfig& config) {
  if (!row.is_object()) return invalid_input("a line must be a JSON object");
  BRAID_ASSIGN(const RowColumns columns, recognise_columns(row, need, config));
  DataRecord record;
  record.format = columns.format;
  if (columns.format == RowFormat::kText) {
    BRAID_TRY(set_text(row, tokenizer, record));
  } else if (columns.format == RowFormat::kImplicitPreference) {
    BRAID_TRY(set_implicit_pair(row["chosen"], row["rejected"], tokenizer, record));
  } else if (columns.format == RowFormat::kMessages && columns.answer.empty() &&
             is_conversation(row["messages"])) {
    BRAID_TRY(set_messages(row["messages"], need, tokenizer, record));
  } else {
    BRAID_TRY(set_columns(row, columns, tokenizer, config, record));
  }
  if (columns.format == RowFormat::kUnpaired) record.unwanted = !row["label"].get<bool>();
  set_extra(row, columns, record);
  return record;
}

}  // namespace braid
