// Which bytes of a rendered conversation the assistant says. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "data/chat/render.h"

namespace braid::inline data {

struct AssistantText {
  std::string text;                // of the whole conversation
  std::vector<jinja::Span> spans;  // of the assistant's turns in it, in their order
};

// Renders a conversation and finds the assistant's turns. Where the template has {% generation %}
// blocks, these are the spans. Otherwise a turn begins where the text up to it, with a generation
// prompt, ends, and ends where the text up to and with it ends; a template that writes earlier
// turns differently from the last one (it drops reasoning) has its turns found by their content. An
// error where neither works. only_last: the last of the assistant's turns alone.
Result<AssistantText> assistant_text(const Tokenizer& tokenizer, const Conversation& conversation,
                                     const ChatOptions& options, bool only_last);

}  // namespace braid::inline data
