#include "data/plain_row.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace braid::inline data {
namespace {

constexpr const char* kMediaColumns[] = {"image", "images", "video", "videos", "audio", "audios"};
constexpr const char* kMediaParts[] = {"image",     "image_url", "input_image", "video",
                                       "video_url", "audio",     "audio_url",   "input_audio"};
// Columns that hold a text or a conversation, beside data.prompt_key.
constexpr const char* kSpokenColumns[] = {"prompt",   "messages", "conversations", "completion",
                                          "response", "chosen",   "rejected"};

// Who speaks, as ShareGPT and its descendants call them, and the role.
struct Speaker {
  const char* from;
  const char* role;
};
constexpr Speaker kSpeakers[] = {
    {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
    {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
    {"bard", "assistant"},      {"model", "assistant"},   {"system", "system"},
    {"tool", "tool"},           {"observation", "tool"},  {"function_response", "tool"}};

bool has_keys(const OrderedJson& value, const char* one, const char* other) {
  return value.is_object() && value.contains(one) && value.contains(other);
}

bool is_share_gpt(const OrderedJson& value) {
  return is_conversation(value) && has_keys(value.front(), "from", "value");
}

// A picture or a sound as `datasets` stores it, whatever its column is called.
bool is_media_file(const OrderedJson& value) {
  if (value.is_array()) return !value.empty() && is_media_file(value.front());
  return value.is_object() && value.size() == 2 && has_keys(value, "bytes", "path");
}

bool is_nothing(const OrderedJson& value) {
  return value.is_null() || ((value.is_array() || value.is_object()) && value.empty()) ||
         value == "";
}

bool is_bytes(const OrderedJson& value) {
  return value.is_object() && value.size() == 1 && value.contains("base64");
}

Status check_no_media(const OrderedJson& row) {
  for (const auto& [name, value] : row.items()) {
    const bool named = std::find(std::begin(kMediaColumns), std::end(kMediaColumns), name) !=
                       std::end(kMediaColumns);
    if (is_nothing(value) || (!named && !is_media_file(value))) continue;
    return invalid_input(cat("key '", name,
                             "' holds pictures, sound or films, which no model here sees; to train "
                             "on the text alone, set data.ignore_columns: [",
                             name, "]; where it is something else, rename the column"));
  }
  return ok_status();
}

Status check_parts(const OrderedJson& content, const std::string& place) {
  for (const OrderedJson& part : content) {
    if (!part.is_object() || !part.contains("type")) continue;
    for (const char* media : kMediaParts)
      if (part["type"] == media)
        return invalid_input(cat(place, " has a part of type '", media,
                                 "', which no model here sees; take the part out of the data"));
  }
  return ok_status();
}

Status check_messages(const OrderedJson& messages, const std::string& name) {
  int64_t number = 0;
  for (const OrderedJson& message : messages) {
    const std::string place = cat("key '", name, "': message ", ++number);
    if (!message.is_object() || !message.contains("content")) continue;
    const OrderedJson& content = message["content"];
    if (is_bytes(content))
      return invalid_input(cat(place, " holds bytes, not text; write the column as text"));
    if (content.is_array()) BRAID_TRY(check_parts(content, place));
  }
  return ok_status();
}

// [{"from", "value"}] as [{"role", "content"}]; further keys of a message stay.
Result<OrderedJson> spoken_messages(const OrderedJson& turns, const std::string& name) {
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& turn : turns) {
    const std::string place = cat("key '", name, "': message ", out.size() + 1);
    if (!has_keys(turn, "from", "value") || !turn["from"].is_string())
      return invalid_input(cat(place, " has no 'from' and 'value', as the first one has"));
    const std::string from = turn["from"];
    const auto* known = std::find_if(std::begin(kSpeakers), std::end(kSpeakers),
                                     [&](const Speaker& speaker) { return from == speaker.from; });
    if (known == std::end(kSpeakers))
      return invalid_input(
          cat(place, " is from '", from,
              "'; known are human, user, gpt, assistant, system, tool, observation and "
              "function_response; write other conversations as messages of role and content"));
    OrderedJson message = {{"role", known->role}, {"content", turn["value"]}};
    for (const auto& [key, value] : turn.items())
      if (key != "from" && key != "value") message[key] = value;
    out.push_back(std::move(message));
  }
  return out;
}

// The text begins as a list of messages, in JSON or as Python prints one.
bool looks_like_messages(const std::string& text) {
  std::string start;
  for (const char c : text) {
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') start += c;
    if (start.size() == 10) break;
  }
  if (!start.starts_with("[{\"") && !start.starts_with("[{'")) return false;
  for (const char* key : {"role", "content", "from", "value"})
    if (start.compare(3, std::string(key).size(), key) == 0) return true;
  return false;
}

// Text that is JSON of messages becomes them; other text stays.
Status unpack_text(const std::string& name, OrderedJson& value, PlainRow& out) {
  const std::string& text = value.get_ref<const std::string&>();
  if (!looks_like_messages(text)) return ok_status();
  auto parsed = parse_ordered_json(text, name);
  if (!parsed.ok())
    return invalid_input(cat("key '", name,
                             "' looks like a list of messages written as text, but is no JSON (nor "
                             "is what Python prints of a list); write the list itself, or its "
                             "JSON"));
  const bool messages = is_conversation(*parsed) &&
                        (has_keys(parsed->front(), "role", "content") || is_share_gpt(*parsed));
  if (!messages) return ok_status();
  value = std::move(*parsed);
  out.unpacked.push_back(name);
  return ok_status();
}

// One column that may hold a conversation.
Status plain_column(const std::string& name, OrderedJson& value, PlainRow& out) {
  if (is_bytes(value))
    return invalid_input(cat("key '", name, "' holds bytes, not text; write the column as text"));
  if (value.is_string()) BRAID_TRY(unpack_text(name, value, out));
  // One message for a list of one, as preference data of LLaMA-Factory have it.
  if (has_keys(value, "from", "value")) value = OrderedJson::array({value});
  if (is_share_gpt(value)) {
    BRAID_ASSIGN(value, spoken_messages(value, name));
    out.dialect = RowDialect::kShareGpt;
  }
  return is_conversation(value) ? check_messages(value, name) : ok_status();
}

bool speaks_first(const OrderedJson& messages, const char* role) {
  const auto found = messages.front().find("role");
  return found != messages.front().end() && *found == role;
}

// A system prompt in a column of its own would be lost.
Status put_system_first(OrderedJson& row, const std::string& name) {
  const auto system = row.find("system");
  if (system == row.end() || is_nothing(*system) || !row.contains(name)) return ok_status();
  if (!system->is_string())
    return invalid_input(cat("key 'system' must be text, not ", system->type_name()));
  OrderedJson& messages = row[name];
  if (is_conversation(messages) && speaks_first(messages, "system"))
    return invalid_input(cat("key 'system': '", name, "' begins with a system message too"));
  messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", *system}});
  return ok_status();
}

bool holds_text(const OrderedJson& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_string();
}

bool is_alpaca(const OrderedJson& row, DataNeed need, const DataConfig& config) {
  for (const std::string& other : {config.prompt_key, std::string("ids"), std::string("messages"),
                                   std::string("conversations")})
    if (find_column(row, other) != nullptr) return false;
  if (need == DataNeed::kSamples && holds_text(row, "text")) return false;
  return config.prompt_key == "prompt" && holds_text(row, "instruction") &&
         (holds_text(row, "output") || holds_text(row, "input"));
}

// instruction and input are the prompt, with a line break between them; output is the answer, or
// the label where the model writes its own.
Status read_alpaca(DataNeed need, PlainRow& out) {
  OrderedJson& row = out.row;
  for (const char* other : {"history", "system"})
    if (row.contains(other) && !is_nothing(row[other]))
      return invalid_input(cat("key '", other,
                               "' of an Alpaca row is not read; write the row as messages, or set "
                               "data.ignore_columns: [",
                               other, "]"));
  std::string prompt = row["instruction"];
  if (holds_text(row, "input") && row["input"] != "")
    prompt += cat("\n", row["input"].get<std::string>());
  row["prompt"] = std::move(prompt);
  const char* answer = need == DataNeed::kSamples ? "response" : "label";
  if (holds_text(row, "output") && find_column(row, answer) == nullptr) row[answer] = row["output"];
  out.dialect = RowDialect::kAlpaca;
  return ok_status();
}

// The format as the other program calls it, where it decides.
RowFormat dialect_format(const PlainRow& out) {
  const RowFormat format = out.columns.format;
  const bool messages = format == RowFormat::kMessages;
  if (out.dialect == RowDialect::kShareGpt && messages) return RowFormat::kShareGpt;
  const bool single = format == RowFormat::kPrompt || format == RowFormat::kPromptResponse;
  return out.dialect == RowDialect::kAlpaca && single ? RowFormat::kAlpaca : format;
}

}  // namespace

Result<PlainRow> plain_row(OrderedJson row, DataNeed need, const DataConfig& config) {
  if (!row.is_object()) return invalid_input("a line must be a JSON object");
  for (const std::string& name : config.ignore_columns) row.erase(name);
  BRAID_TRY(check_no_media(row));
  PlainRow out;
  out.row = std::move(row);
  std::set<std::string> names(std::begin(kSpokenColumns), std::end(kSpokenColumns));
  names.insert(config.prompt_key);
  std::map<std::string, Status> read;
  for (const std::string& name : names)
    if (const OrderedJson* found = find_column(out.row, name))
      read[name] = plain_column(name, const_cast<OrderedJson&>(*found), out);
  if (out.dialect == RowDialect::kShareGpt) {
    const char* turns = out.row.contains("conversations") ? "conversations" : "messages";
    BRAID_TRY(put_system_first(out.row, turns));
  }
  if (is_alpaca(out.row, need, config)) BRAID_TRY(read_alpaca(need, out));
  BRAID_ASSIGN(out.columns, recognise_columns(out.row, need, config));
  for (const std::string* used : {&out.columns.prompt, &out.columns.answer, &out.columns.rejected})
    if (const auto found = read.find(*used); found != read.end()) BRAID_TRY(found->second);
  out.columns.format = dialect_format(out);
  return out;
}

std::string PlainRow::description() const {
  std::string out = describe_columns(row, columns);
  if (columns.format == RowFormat::kAlpaca) out += "; the prompt is instruction and input";
  for (const std::string& name : unpacked)
    out += cat("; '", name, "' is JSON text, read as the messages that it holds");
  return out;
}

}  // namespace braid::inline data
