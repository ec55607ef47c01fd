#include "data/record.h"

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "data/chat/render.h"
#include "data/plain_row.h"

namespace braid::inline data {
namespace {

constexpr const char* kTemplatePlace = "{prompt}";

// What rows are read with; the tokenizer may be null.
struct RowReader {
  const Tokenizer* tokenizer;
  const DataConfig& config;
  DataNeed need;
};

Result<std::vector<int32_t>> ids_of(const OrderedJson& list, const std::string& key) {
  std::vector<int32_t> out;
  for (const OrderedJson& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      return invalid_input(cat("key '", key, "': ", id.dump(), " is no token id"));
    out.push_back(id.get<int32_t>());
  }
  return out;
}

Status need_tokenizer(const Tokenizer* tokenizer, const std::string& key) {
  if (tokenizer != nullptr) return ok_status();
  return invalid_input(cat("key '", key,
                           "' is text, but there is no tokenizer; set model.path to a folder "
                           "with one, or tokenizer.path, or give ids"));
}

std::string filled_template(const DataConfig& config, const std::string& prompt) {
  std::string text = config.prompt_template;
  const size_t place = text.find(kTemplatePlace);
  return text.empty() ? prompt : text.replace(place, std::string(kTemplatePlace).size(), prompt);
}

// Messages with the tools and documents of their row, which a template sees too.
Result<Conversation> conversation_of(const OrderedJson& row, OrderedJson messages) {
  OrderedJson line = {{"messages", std::move(messages)}};
  for (const char* other : {"tools", "documents"})
    if (row.contains(other)) line[other] = row[other];
  return read_conversation(line, "messages");
}

// How a conversation that is the prompt ends: a turn of the assistant's begins, or its last message
// is its beginning, which the model goes on with.
enum class PromptEnd { kNewTurn, kOpenMessage };

// Sets prompt and prompt_ids from a conversation; the text is what the model will see.
Status set_conversation(const OrderedJson& row, const OrderedJson& messages, const std::string& key,
                        PromptEnd end, const RowReader& reader, DataRecord& record) {
  BRAID_TRY(need_tokenizer(reader.tokenizer, key));
  record.conversation = messages;
  BRAID_ASSIGN(const Conversation conversation,
               conversation_of(row, messages).at(cat("key '", key, "'")));
  BRAID_ASSIGN(ChatOptions options, chat_options(reader.config));
  options.add_generation_prompt = end == PromptEnd::kNewTurn;
  options.continue_final_message = end == PromptEnd::kOpenMessage;
  BRAID_ASSIGN(ChatIds chat,
               encode_chat(*reader.tokenizer, conversation, options).at(cat("key '", key, "'")));
  record.prompt = std::move(chat.text);
  record.prompt_ids = std::move(chat.ids);
  return ok_status();
}

Status set_prompt_text(const OrderedJson& row, const std::string& text, const std::string& key,
                       const RowReader& reader, DataRecord& record) {
  BRAID_TRY(need_tokenizer(reader.tokenizer, key));
  record.prompt = filled_template(reader.config, text);
  if (reader.config.prompt_format == "chat")
    return set_conversation(
        row, OrderedJson::array({OrderedJson{{"role", "user"}, {"content", record.prompt}}}), key,
        PromptEnd::kNewTurn, reader, record);
  BRAID_ASSIGN(record.prompt_ids, reader.tokenizer->encode(record.prompt, true));
  return ok_status();
}

Status set_prompt(const OrderedJson& row, const std::string& key, const RowReader& reader,
                  DataRecord& record) {
  const OrderedJson& value = *find_column(row, key);
  if (is_conversation(value)) {
    const bool open = reader.need == DataNeed::kPrompts && ends_with_assistant(value);
    BRAID_TRY(set_conversation(
        row, value, key, open ? PromptEnd::kOpenMessage : PromptEnd::kNewTurn, reader, record));
  } else if (value.is_array()) {
    BRAID_ASSIGN(record.prompt_ids, ids_of(value, key));
    const OrderedJson* text = find_column(row, reader.config.prompt_key);
    if (text != nullptr && text->is_string()) record.prompt = text->get<std::string>();
  } else if (value.is_string() && key != "ids" && !is_message_column(key)) {
    BRAID_TRY(set_prompt_text(row, value.get<std::string>(), key, reader, record));
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
Result<std::vector<int32_t>> spoken_answer(const OrderedJson& row, const OrderedJson& answer,
                                           const std::string& key, const RowReader& reader,
                                           const DataRecord& record) {
  if (record.conversation.is_null())
    return invalid_input(
        cat("key '", key, "' is a conversation, so the prompt must be one too, not text or ids"));
  OrderedJson messages = record.conversation;
  for (const OrderedJson& message : answer) messages.push_back(message);
  BRAID_ASSIGN(const Conversation whole, conversation_of(row, std::move(messages)));
  BRAID_ASSIGN(const ChatOptions options, chat_options(reader.config));
  BRAID_ASSIGN(const ChatIds chat, encode_chat(*reader.tokenizer, whole, options));
  const auto& all = chat.ids;
  const auto& prompt = record.prompt_ids;
  if (all.size() <= prompt.size() || !std::equal(prompt.begin(), prompt.end(), all.begin()))
    return invalid_input(
        cat("key '", key,
            "': the template writes the prompt differently when an answer follows; give 'prompt' "
            "and 'response'"));
  return std::vector<int32_t>(all.begin() + static_cast<int64_t>(prompt.size()), all.end());
}

// Ids of an answer to record's prompt: text, ids or messages.
Result<std::vector<int32_t>> answer_ids(const OrderedJson& row, const OrderedJson& value,
                                        const std::string& key, const RowReader& reader,
                                        const DataRecord& record) {
  std::vector<int32_t> ids;
  if (is_conversation(value)) {
    BRAID_TRY(need_tokenizer(reader.tokenizer, key));
    BRAID_ASSIGN(ids, spoken_answer(row, value, key, reader, record));
  } else if (value.is_array()) {
    BRAID_ASSIGN(ids, ids_of(value, key));
  } else if (value.is_string()) {
    BRAID_ASSIGN(ids, text_answer(value.get<std::string>(), key, reader.tokenizer));
  } else {
    return invalid_input(
        cat("key '", key, "' must be text or a list of ids, not ", value.type_name()));
  }
  if (ids.empty()) return invalid_input(cat("key '", key, "' is empty"));
  return ids;
}

// messages[begin, end).
OrderedJson messages_between(const OrderedJson& messages, size_t begin, size_t end) {
  OrderedJson out = OrderedJson::array();
  for (size_t i = begin; i < end; ++i) out.push_back(messages[i]);
  return out;
}

// Splits a conversation at the first token to learn: what stands before is the prompt, what comes
// behind the last one goes.
Status split_conversation(const OrderedJson& row, const std::string& key, const RowReader& reader,
                          DataRecord& record) {
  const OrderedJson& messages = row[key];
  BRAID_TRY(need_tokenizer(reader.tokenizer, key));
  BRAID_ASSIGN(const Conversation conversation, conversation_of(row, messages));
  BRAID_ASSIGN(const ChatOptions options, chat_options(reader.config));
  const auto turns = reader.config.learn == "all"    ? LearnedTurns::kEverything
                     : reader.config.learn == "last" ? LearnedTurns::kLast
                                                     : LearnedTurns::kAssistant;
  BRAID_ASSIGN(const ChatIds chat,
               encode_chat_with_mask(*reader.tokenizer, conversation, options, turns));
  const auto first = std::find(chat.learned.begin(), chat.learned.end(), 1);
  if (first == chat.learned.end())
    return invalid_input(
        cat("key '", key, "': the assistant says nothing, so there is nothing to learn"));
  const auto last = std::find(chat.learned.rbegin(), chat.learned.rend(), 1).base();
  const auto begin = std::max<ptrdiff_t>(first - chat.learned.begin(), 1);
  const auto end = last - chat.learned.begin();
  if (begin >= end)
    return invalid_input(cat("key '", key, "': a single token is nothing to learn"));
  record.conversation = messages;
  record.prompt_ids.assign(chat.ids.begin(), chat.ids.begin() + begin);
  record.response_ids.assign(chat.ids.begin() + begin, chat.ids.begin() + end);
  record.learned.assign(chat.learned.begin() + begin, last);
  BRAID_ASSIGN(record.prompt, reader.tokenizer->decode(record.prompt_ids, false));
  return ok_status();
}

// Messages: what the assistant says is learnt, or, where the model writes its own answer, the
// assistant's last message is left out.
Status set_messages(const OrderedJson& row, const std::string& key, const RowReader& reader,
                    DataRecord& record) {
  if (reader.need == DataNeed::kSamples) return split_conversation(row, key, reader, record);
  const OrderedJson& messages = row[key];
  const bool answered = ends_with_assistant(messages) && messages.size() > 1;
  const size_t border = messages.size() - (answered ? 1 : 0);
  BRAID_TRY(set_conversation(row, messages_between(messages, 0, border), key, PromptEnd::kNewTurn,
                             reader, record));
  return record.prompt_ids.empty() ? invalid_input("the prompt is empty") : ok_status();
}

// The whole of a text: its first token is the prompt, since nothing predicts it.
Status set_text(const OrderedJson& row, const Tokenizer* tokenizer, DataRecord& record) {
  const OrderedJson& value = row["text"];
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

size_t common_messages(const OrderedJson& a, const OrderedJson& b) {
  size_t same = 0;
  while (same < std::min(a.size(), b.size()) && a[same] == b[same]) ++same;
  return same;
}

// Two answers that begin alike: that beginning is the prompt.
Status set_implicit_pair(const OrderedJson& row, const RowReader& reader, DataRecord& record) {
  const OrderedJson &chosen = row["chosen"], &rejected = row["rejected"];
  const bool spoken = is_conversation(chosen) && is_conversation(rejected);
  if (!spoken && !(chosen.is_string() && rejected.is_string()))
    return invalid_input(
        "without a 'prompt', 'chosen' and 'rejected' must both be text or both conversations");
  if (chosen == rejected) return invalid_input("'chosen' and 'rejected' are the same");
  BRAID_TRY(need_tokenizer(reader.tokenizer, "chosen"));
  OrderedJson prompt, better, worse;
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
  OrderedJson explicit_row = {{"prompt", prompt}};
  for (const char* other : {"tools", "documents"})
    if (row.contains(other)) explicit_row[other] = row[other];
  // What both begin with stands as it is: no text is put around it.
  DataConfig as_it_is = reader.config;
  as_it_is.prompt_format = DataConfig().prompt_format;
  as_it_is.prompt_template = DataConfig().prompt_template;
  BRAID_TRY(set_prompt(explicit_row, "prompt", {reader.tokenizer, as_it_is, reader.need}, record));
  BRAID_ASSIGN(record.response_ids, answer_ids(row, better, "chosen", reader, record));
  BRAID_ASSIGN(record.rejected_ids, answer_ids(row, worse, "rejected", reader, record));
  return ok_status();
}

Status set_columns(const OrderedJson& row, const RowColumns& columns, const RowReader& reader,
                   DataRecord& record) {
  const OrderedJson& prompt = *find_column(row, columns.prompt);
  if (prompt == "" && reader.need != DataNeed::kSamples)
    return invalid_input(
        "the prompt is empty; where a response to nothing is meant, give the first token as ids");
  BRAID_TRY(set_prompt(row, columns.prompt, reader, record));
  if (!columns.answer.empty()) {
    BRAID_ASSIGN(record.response_ids, answer_ids(row, *find_column(row, columns.answer),
                                                 columns.answer, reader, record));
  }
  if (!columns.rejected.empty()) {
    BRAID_ASSIGN(record.rejected_ids, answer_ids(row, *find_column(row, columns.rejected),
                                                 columns.rejected, reader, record));
  }
  return ok_status();
}

// The other columns; the label stands under its own name and as "label".
void set_extra(const OrderedJson& row, const RowColumns& columns, DataRecord& record) {
  for (const auto& [name, value] : row.items())
    if (name != columns.prompt) record.extra[name] = Json(value);
  if (!columns.label.empty()) record.extra["label"] = Json(*find_column(row, columns.label));
}

}  // namespace

Result<DataRecord> make_record(OrderedJson written, DataNeed need, const Tokenizer* tokenizer,
                               const DataConfig& config) {
  BRAID_ASSIGN(const PlainRow plain, plain_row(std::move(written), need, config));
  const OrderedJson& row = plain.row;
  const RowColumns& columns = plain.columns;
  const RowReader reader{tokenizer, config, need};
  DataRecord record;
  record.format = columns.format;
  if (columns.format == RowFormat::kText) {
    BRAID_TRY(set_text(row, tokenizer, record));
  } else if (columns.format == RowFormat::kImplicitPreference) {
    BRAID_TRY(set_implicit_pair(row, reader, record));
  } else if (is_message_column(columns.prompt) && columns.answer.empty() &&
             is_conversation(row[columns.prompt])) {
    BRAID_TRY(set_messages(row, columns.prompt, reader, record));
  } else {
    BRAID_TRY(set_columns(row, columns, reader, record));
  }
  if (columns.format == RowFormat::kUnpaired)
    record.unwanted = !*truth_of(*find_column(row, columns.label));
  if (columns.format == RowFormat::kScored)
    record.score = *number_of(*find_column(row, columns.label));
  set_extra(row, columns, record);
  return record;
}

}  // namespace braid::inline data
