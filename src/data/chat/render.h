// Conversations as text and as token ids, byte for byte what transformers' apply_chat_template
// gives. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/options.h"
#include "data/tokenizer/tokenizer.h"
#include "jinja/template.h"

namespace braid::inline data {

struct Conversation {
  OrderedJson messages;   // [{"role": …, "content": …}, …]
  OrderedJson tools;      // JSON schemas of the functions that the model may call, or null
  OrderedJson documents;  // [{"title": …, "text": …}, …] that the model may look into, or null
};

struct ChatOptions {
  bool add_generation_prompt = false;             // end with the beginning of the assistant's turn
  bool continue_final_message = false;            // end inside of the last message
  std::string template_name;                      // of several; "" = default, or tool_use for tools
  OrderedJson arguments = OrderedJson::object();  // further variables of the template
  std::string date;  // "YYYY-MM-DD" that the template sees as today; "" = today()
};

// The local day, "YYYY-MM-DD", on which this process first asked: one process sees one day.
std::string today();

// The options of a configuration's data section.
Result<ChatOptions> chat_options(const DataConfig& config);

// A line's fields messages (or the field `key`), tools and documents. Errors name the field.
Result<Conversation> read_conversation(const OrderedJson& line, const std::string& key);

// The text. Fails where the template refuses the conversation, with template, line and tag.
Result<jinja::Rendering> render_chat(const Tokenizer& tokenizer, const Conversation& conversation,
                                     const ChatOptions& options);

struct ChatIds {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<uint8_t> learned;  // [ids] 1 for the tokens to learn; empty if not asked for
};

// What training learns of a conversation.
enum class LearnedTurns { kAssistant, kLast, kEverything };

// The ids of the text, without special tokens that the template does not write.
Result<ChatIds> encode_chat(const Tokenizer& tokenizer, const Conversation& conversation,
                            const ChatOptions& options);

// The same with the mask of what to learn: all turns of the assistant (assistant_spans.h says which
// tokens those are), its last one, or everything.
Result<ChatIds> encode_chat_with_mask(const Tokenizer& tokenizer, const Conversation& conversation,
                                      const ChatOptions& options, LearnedTurns turns);

}  // namespace braid::inline data
