#include "data/chat/render.h"

#include <array>
#include <ctime>

#include "base/text.h"
#include "base/yaml.h"
#include "data/chat/assistant_spans.h"
#include "data/chat/template_arguments.h"
#include "data/chat/token_mask.h"
#include "jinja/text.h"

namespace braid::inline data {
namespace {

// What templates call the reasoning of a message; transformers passes it under all of these names.
constexpr std::array<const char*, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};
constexpr const char* kContent = "content";
// Put behind the last message, so that its end is found in the rendered text.
constexpr std::string_view kEndMark = "BRAID_END_OF_FINAL_MESSAGE ";

std::string_view without_last_blank(std::string_view text) {
  return text.substr(0, text.size() - 1);
}

// Keys without a value go, and reasoning is given under each name.
OrderedJson plain_message(const OrderedJson& message) {
  OrderedJson out = OrderedJson::object();
  const OrderedJson* reasoning = nullptr;
  for (const char* name : kReasoning)
    if (reasoning == nullptr && message.contains(name) && !message[name].is_null())
      reasoning = &message[name];
  if (reasoning != nullptr) out["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items())
    if (!value.is_null()) out[key] = value;
  if (reasoning != nullptr) out["reasoning_content"] = *reasoning;
  return out;
}

Result<OrderedJson> plain_messages(const OrderedJson& messages) {
  if (!messages.is_array() || messages.empty())
    return invalid_input("a conversation is a list of at least one message");
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& message : messages) {
    if (!message.is_object())
      return invalid_input(cat("message ", out.size() + 1, " is no object with a role"));
    out.push_back(plain_message(message));
  }
  return out;
}

// Puts the mark behind the text of the last message; gives that text.
Result<std::string> mark_end(OrderedJson* messages) {
  OrderedJson& message = messages->back();
  if (!message.contains(kContent))
    return invalid_input("continue_final_message: the last message has no content");
  OrderedJson* text = &message[kContent];
  if (text->is_array()) {
    OrderedJson* last = nullptr;
    for (OrderedJson& part : *text)
      if (part.is_object() && part.contains("text")) last = &part["text"];
    text = last;
  }
  if (text == nullptr || !text->is_string())
    return invalid_input("continue_final_message: the content of the last message is no text");
  std::string before = text->get<std::string>();
  *text = before + std::string(kEndMark);
  return before;
}

// The rendered text up to the mark. Where the template trimmed the message, so is the text's end.
Result<std::string> cut_at_mark(const std::string& text, const std::string& message) {
  const std::string_view mark = without_last_blank(kEndMark);
  const size_t at = text.rfind(mark);
  if (at == std::string::npos || text.find(jinja::strip(message)) == std::string::npos)
    return invalid_input(
        "continue_final_message: the template does not write the last message as it is");
  const std::string out = text.substr(0, at);
  if (text.compare(at, kEndMark.size(), kEndMark) == 0) return out;
  return std::string(jinja::strip(out, jinja::Side::kRight));
}

Result<jinja::Dict> variables_of(const Tokenizer& tokenizer, const OrderedJson& messages,
                                 const Conversation& conversation, const ChatOptions& options) {
  jinja::Dict out;
  for (const auto& [name, text] : tokenizer.chat_templates().special_tokens())
    out.set(jinja::Value(name), jinja::Value(text));
  for (const auto& [name, argument] : options.arguments.items()) {
    BRAID_ASSIGN(jinja::Value value, jinja::from_json(argument));
    out.set(jinja::Value(name), std::move(value));
  }
  const std::array<std::pair<const char*, const OrderedJson*>, 3> fields = {
      {{"messages", &messages},
       {"tools", &conversation.tools},
       {"documents", &conversation.documents}}};
  for (const auto& [name, json] : fields) {
    BRAID_ASSIGN(jinja::Value value, jinja::from_json(*json).at(name));
    out.set(jinja::Value(name), std::move(value));
  }
  out.set(jinja::Value("add_generation_prompt"), jinja::Value(options.add_generation_prompt));
  return out;
}

std::string text_of(const std::tm& time, const char* format) {
  constexpr size_t kMost = 8192;
  std::string text(kMost, '\0');
  text.resize(std::strftime(text.data(), text.size(), format, &time));
  return text;
}

constexpr const char* kDateFormat = "%Y-%m-%d";

// strftime of the day that is given, at noon.
Result<jinja::RenderOptions> render_options(const std::string& date) {
  std::tm time{};
  const std::string noon = cat(date.empty() ? today() : date, " 12:00:00");
  const char* end = strptime(noon.c_str(), cat(kDateFormat, " %H:%M:%S").c_str(), &time);
  if (end == nullptr || *end != '\0')
    return invalid_input(cat("data.template_date: '", date, "' is no date such as 2024-07-26"));
  jinja::RenderOptions out;
  out.now = [time](const std::string& format) { return text_of(time, format.c_str()); };
  return out;
}

Status check_list(const OrderedJson& value, const char* name) {
  if (value.is_null()) return ok_status();
  if (!value.is_array()) return invalid_input(cat("key '", name, "' must be a list"));
  for (const OrderedJson& item : value)
    if (!item.is_object()) return invalid_input(cat("key '", name, "': an item is no object"));
  return ok_status();
}

}  // namespace

std::string today() {
  static const std::string day = [] {
    std::tm time{};
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &time);
    return text_of(time, kDateFormat);
  }();
  return day;
}

Result<ChatOptions> chat_options(const DataConfig& config) {
  ChatOptions out;
  out.template_name = config.template_name;
  out.date = config.template_date;
  BRAID_ASSIGN(out.arguments, template_arguments(config.template_arguments));
  BRAID_TRY(render_options(out.date).status());
  return out;
}

Result<Conversation> read_conversation(const OrderedJson& line, const std::string& key) {
  Conversation out;
  if (line.contains(key)) out.messages = line[key];
  if (line.contains("documents")) out.documents = line["documents"];
  if (line.contains("tools")) out.tools = line["tools"];
  if (out.tools.is_string()) {  // as columns of a table hold them
    BRAID_ASSIGN(out.tools, parse_ordered_json(out.tools.get<std::string>(), "key 'tools'"));
  }
  BRAID_TRY(check_list(out.tools, "tools"));
  BRAID_TRY(check_list(out.documents, "documents"));
  return out;
}

Result<jinja::Rendering> render_chat(const Tokenizer& tokenizer, const Conversation& conversation,
                                     const ChatOptions& options) {
  if (options.add_generation_prompt && options.continue_final_message)
    return invalid_input("add_generation_prompt and continue_final_message exclude each other");
  BRAID_ASSIGN(
      const jinja::Template chat,
      tokenizer.chat_templates().choose(options.template_name, !conversation.tools.is_null()));
  BRAID_ASSIGN(OrderedJson messages, plain_messages(conversation.messages));
  std::string last;
  if (options.continue_final_message) {
    BRAID_ASSIGN(last, mark_end(&messages));
  }
  BRAID_ASSIGN(const jinja::Dict variables,
               variables_of(tokenizer, messages, conversation, options));
  BRAID_ASSIGN(const jinja::RenderOptions limits, render_options(options.date));
  BRAID_ASSIGN(jinja::Rendering out, chat.render(variables, limits));
  if (options.continue_final_message) {
    BRAID_ASSIGN(out.text, cut_at_mark(out.text, last));
    out.spans_known = false;
  }
  return out;
}

Result<ChatIds> encode_chat(const Tokenizer& tokenizer, const Conversation& conversation,
                            const ChatOptions& options) {
  BRAID_ASSIGN(jinja::Rendering rendering, render_chat(tokenizer, conversation, options));
  ChatIds out;
  out.text = std::move(rendering.text);
  BRAID_ASSIGN(out.ids, tokenizer.encode(out.text, false));
  return out;
}

Result<ChatIds> encode_chat_with_mask(const Tokenizer& tokenizer, const Conversation& conversation,
                                      const ChatOptions& options, LearnedTurns turns) {
  ChatIds out;
  if (turns == LearnedTurns::kEverything) {
    BRAID_ASSIGN(out, encode_chat(tokenizer, conversation, options));
    out.learned.assign(out.ids.size(), 1);
    return out;
  }
  if (options.continue_final_message)
    return invalid_input("a mask of the assistant's tokens needs whole messages");
  const bool only_last = turns == LearnedTurns::kLast;
  BRAID_ASSIGN(AssistantText text, assistant_text(tokenizer, conversation, options, only_last));
  out.text = std::move(text.text);
  BRAID_ASSIGN(out.ids, tokenizer.encode(out.text, false));
  BRAID_ASSIGN(out.learned, token_mask(tokenizer, out.text, out.ids, text.spans));
  return out;
}

}  // namespace braid::inline data
