// Writing conversations in the known formats.
#include <algorithm>
#include <optional>
#include <utility>

#include "data/chat/template.h"
#include "data/tokenizer/unicode.h"

namespace braid {
namespace {

// Python's str.strip, which is what Jinja's trim calls: White_Space and the four separators.
std::string_view strip(std::string_view text) {
  const auto is_blank = [](char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); };
  size_t first = text.size(), last = text.size();
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is_blank(next_code_point(text, &at))) continue;
    first = std::min(first, begin);
    last = at;
  }
  return text.substr(first, last - first);
}

struct Writer {
  const ChatTemplate& chat;
  const std::vector<ChatMessage>& messages;
  const ChatRendering& rendering;

  std::string content(const ChatMessage& message) const {
    return chat.trims_content ? std::string(strip(message.content)) : message.content;
  }
  std::string bos() const { return chat.writes_bos ? rendering.bos_token : ""; }
  std::string prompt(const char* text) const {
    return rendering.add_generation_prompt || chat.always_prompts ? text : "";
  }

  std::string chatml() const {
    std::string out = bos();
    if (!chat.default_system.empty() && messages[0].role != "system")
      out += cat("<|im_start|>system\n", chat.default_system, "<|im_end|>\n");
    for (const ChatMessage& message : messages)
      out += cat("<|im_start|>", message.role, "\n", content(message), "<|im_end|>\n");
    return out + prompt("<|im_start|>assistant\n");
  }

  std::string llama3() const {
    std::string out = bos();
    for (const ChatMessage& message : messages)
      out += cat("<|start_header_id|>", message.role, "<|end_header_id|>\n\n", content(message),
                 "<|eot_id|>");
    return out + prompt("<|start_header_id|>assistant<|end_header_id|>\n\n");
  }

  std::string gemma() const {
    std::string out = bos();
    for (const ChatMessage& message : messages)
      out += cat("<start_of_turn>", message.role == "assistant" ? "model" : message.role, "\n",
                 content(message), "<end_of_turn>\n");
    return out + prompt("<start_of_turn>model\n");
  }

  std::string llama2() const {
    std::string out, system;
    for (const ChatMessage& message : messages) {
      if (message.role == "system")
        system = cat("<<SYS>>\n", message.content, "\n<</SYS>>\n\n");
      else if (message.role == "user")
        out +=
            cat(bos(), "[INST] ", strip(std::exchange(system, "") + message.content), " [/INST]");
      else
        out += cat(" ", strip(message.content), " ", rendering.eos_token);
    }
    return out;
  }

  std::string plain() const {
    std::string out = bos();
    for (const ChatMessage& message : messages)
      out += cat(message.role, ": ", content(message), "\n");
    return out + prompt("assistant: ");
  }
};

// user, assistant, user, … after `first` messages.
Status check_alternation(const std::vector<ChatMessage>& messages, size_t first, const char* name) {
  for (size_t i = first; i < messages.size(); ++i) {
    const char* wanted = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != wanted)
      return invalid_input(cat("message ", i + 1, " has the role '", messages[i].role,
                               "' where the ", name, " template wants '", wanted, "'"));
  }
  return ok_status();
}

Status check_roles(ChatFormat format, const std::vector<ChatMessage>& messages) {
  if (format == ChatFormat::kGemma) return check_alternation(messages, 0, "gemma");
  if (format == ChatFormat::kLlama2)
    return check_alternation(messages, messages[0].role == "system" ? 1 : 0, "llama2");
  return ok_status();
}

// True when the tokenizer puts BOS in front of every text.
Result<bool> adds_bos(const Tokenizer& tokenizer) {
  if (!tokenizer.bos_id()) return false;
  BRAID_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode("", true));
  return !ids.empty() && ids[0] == *tokenizer.bos_id();
}

Status check_special(const std::optional<int32_t>& id, const char* name) {
  if (id) return ok_status();
  return invalid_input(cat("the chat template writes ", name,
                           ", but tokenizer_config.json names no ", name, " of the vocabulary"));
}

}  // namespace

Result<std::string> render_chat(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                                const ChatRendering& rendering) {
  if (messages.empty()) return invalid_input("a conversation needs at least one message");
  BRAID_TRY(check_roles(chat.format, messages));
  const Writer writer{chat, messages, rendering};
  switch (chat.format) {
    case ChatFormat::kChatml:
      return writer.chatml();
    case ChatFormat::kLlama2:
      return writer.llama2();
    case ChatFormat::kLlama3:
      return writer.llama3();
    case ChatFormat::kGemma:
      return writer.gemma();
    case ChatFormat::kPlain:
      return writer.plain();
  }
  return invalid_input("unknown chat format");
}

Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const std::vector<ChatMessage>& messages,
                                         bool add_generation_prompt) {
  ChatRendering rendering;
  rendering.add_generation_prompt = add_generation_prompt;
  if (chat.writes_bos) BRAID_TRY(check_special(tokenizer.bos_id(), "bos_token"));
  if (chat.format == ChatFormat::kLlama2) BRAID_TRY(check_special(tokenizer.eos_id(), "eos_token"));
  if (tokenizer.bos_id()) rendering.bos_token = tokenizer.id_to_token(*tokenizer.bos_id());
  if (tokenizer.eos_id()) rendering.eos_token = tokenizer.id_to_token(*tokenizer.eos_id());
  BRAID_ASSIGN(const std::string text, render_chat(chat, messages, rendering));
  BRAID_ASSIGN(std::vector<int32_t> ids, tokenizer.encode(text, false));
  BRAID_ASSIGN(const bool wants_bos, adds_bos(tokenizer));
  if (wants_bos && (ids.empty() || ids[0] != *tokenizer.bos_id()))
    ids.insert(ids.begin(), *tokenizer.bos_id());
  return ids;
}

}  // namespace braid
