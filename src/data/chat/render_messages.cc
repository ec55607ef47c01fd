#include "data/chat/render_messages.h"

#include "data/chat/template.h"

namespace braid {

Result<std::vector<int32_t>> render_messages(const Tokenizer& tokenizer, const Json& messages,
                                             bool add_generation_prompt) {
  BRAID_ASSIGN(const ChatTemplate chat, recognize_chat_template(tokenizer.chat_template()));
  BRAID_ASSIGN(const std::vector<ChatMessage> parsed, parse_messages(messages));
  return encode_chat(tokenizer, chat, parsed, add_generation_prompt);
}

}  // namespace braid
