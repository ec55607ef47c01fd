// Conversations as token ids. A chat template is a Jinja program beside the tokenizer; Braid runs
// no Jinja but recognises, by the program's text, the formats that it can write itself. What it
// does not recognise exactly is an error, never an approximation. Values; functions are
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

namespace braid {

struct ChatMessage {
  std::string role;
  std::string content;

  friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

// R and C are role and content of a message; the last part, in [], asks for a response.
enum class ChatFormat {
  kChatml,  // <|im_start|>R\nC<|im_end|>\n … [<|im_start|>assistant\n]
  kLlama2,  // BOS[INST] C [/INST] C EOS …, a system text as <<SYS>>…<</SYS>> in the first turn
  kLlama3,  // BOS<|start_header_id|>R<|end_header_id|>\n\nC<|eot_id|> … [header of assistant]
  kGemma,   // BOS<start_of_turn>R\nC<end_of_turn>\n …, assistant called model [header of model]
  kPlain,   // R: C\n … [assistant: ]
};

struct ChatTemplate {
  ChatFormat format = ChatFormat::kPlain;
  bool writes_bos = false;      // BOS is part of the text; llama2 repeats it for every turn
  bool trims_content = false;   // white space around a content is dropped
  bool always_prompts = false;  // a response is asked for even if the caller does not want it
  std::string default_system;   // chatml: the system text of a conversation that has none

  friend bool operator==(const ChatTemplate&, const ChatTemplate&) = default;
};

// "chatml", "llama2", "llama3", "gemma" or "plain".
const char* chat_format_name(ChatFormat format);

// Reads [{"role": text, "content": text}, …], at least one; contents in parts and tool calls are
// errors.
Result<std::vector<ChatMessage>> parse_messages(const Json& messages);

// The template that a Jinja program stands for. Spelling (quotes, blanks, names of variables, how
// texts are joined) does not matter. An unknown program, or "" for none, is an error that lists the
// known names and the command that renders such data with the program itself.
Result<ChatTemplate> recognize_chat_template(std::string_view jinja);

struct ChatRendering {
  std::string bos_token;               // text of the BOS token, "" when the tokenizer has none
  std::string eos_token;               // text of the EOS token
  bool add_generation_prompt = false;  // end with the beginning of the assistant's turn
};

// The text of a conversation, byte for byte what the recognised program would write. An order of
// roles that the program rejects is an error.
Result<std::string> render_chat(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                                const ChatRendering& rendering);

// Ids of a conversation. The text begins with exactly one BOS where the template writes it or the
// tokenizer puts it in front of every text; special tokens in the text are recognised.
Result<std::vector<int32_t>> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat,
                                         const std::vector<ChatMessage>& messages,
                                         bool add_generation_prompt);

}  // namespace braid
