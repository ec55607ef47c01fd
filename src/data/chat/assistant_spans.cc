#include "data/chat/assistant_spans.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/text.h"

namespace braid::inline data {
namespace {

bool begins_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Bytes that two texts have in common at their beginning, whole characters only.
size_t common_prefix(const std::string& a, const std::string& b) {
  const size_t most = std::min(a.size(), b.size());
  size_t at = static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(most), b.begin()).first -
      a.begin());
  while (at > 0 && at < a.size() && (static_cast<uint8_t>(a[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::string content_of(const OrderedJson& message) {
  const auto content = message.find("content");
  const bool is_text = content != message.end() && content->is_string();
  return is_text ? std::string(jinja::strip(content->get_ref<const std::string&>())) : "";
}

class SpanFinder {
 public:
  SpanFinder(const Tokenizer& tokenizer, const Conversation& conversation,
             const ChatOptions& options, const std::string& text)
      : tokenizer_(tokenizer), conversation_(conversation), options_(options), text_(text) {}

  // Of the message at `index`; nothing is said by the assistant before byte `least`.
  Result<jinja::Span> find(size_t index, size_t least) const {
    BRAID_ASSIGN(const std::string with, prefix(index + 1, false));
    const Result<std::string> before = index > 0 ? prefix(index, true) : std::string();
    if (before.ok() && begins_with(with, *before) && begins_with(text_, with))
      return jinja::Span{before->size(), with.size()};
    const size_t begin = before.ok() ? common_prefix(text_, *before) : least;
    return find_content(index, std::max(begin, least), with);
  }

 private:
  // The text of the first messages.
  Result<std::string> prefix(size_t count, bool prompt) const {
    Conversation part = conversation_;
    part.messages.erase(part.messages.begin() + static_cast<ptrdiff_t>(count), part.messages.end());
    ChatOptions options = options_;
    options.add_generation_prompt = prompt;
    BRAID_ASSIGN(jinja::Rendering rendering, render_chat(tokenizer_, part, options));
    return std::move(rendering.text);
  }

  // `with` is the text up to and with the message; what stands there behind its content ends the
  // turn in the whole text as well.
  Result<jinja::Span> find_content(size_t index, size_t begin, const std::string& with) const {
    const std::string content = content_of(conversation_.messages[index]);
    const size_t shown = content.empty() ? std::string::npos : with.rfind(content);
    const size_t found = content.empty() ? std::string::npos : text_.find(content, begin);
    if (shown != std::string::npos && found != std::string::npos) {
      const std::string ending = with.substr(shown + content.size());
      const size_t behind = found + content.size();
      if (text_.compare(behind, ending.size(), ending) == 0)
        return jinja::Span{begin, behind + ending.size()};
    }
    return invalid_input(
        cat("message ", index + 1,
            ": the chat template writes this turn of the assistant differently "
            "when others follow, so that what to learn cannot be told; set data.learn to all, or "
            "to last, or "
            "use a template that marks the assistant's text with {% generation %}"));
  }

  const Tokenizer& tokenizer_;
  const Conversation& conversation_;
  const ChatOptions& options_;
  const std::string& text_;
};

bool is_assistant(const OrderedJson& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

}  // namespace

Result<AssistantText> assistant_text(const Tokenizer& tokenizer, const Conversation& conversation,
                                     const ChatOptions& options, bool only_last) {
  BRAID_ASSIGN(jinja::Rendering rendering, render_chat(tokenizer, conversation, options));
  AssistantText out;
  out.text = std::move(rendering.text);
  if (rendering.spans_known && !rendering.generated.empty()) {
    out.spans = std::move(rendering.generated);
    if (only_last) out.spans.erase(out.spans.begin(), out.spans.end() - 1);
    return out;
  }
  const SpanFinder finder(tokenizer, conversation, options, out.text);
  std::vector<size_t> turns;
  for (size_t i = 0; i < conversation.messages.size(); ++i)
    if (is_assistant(conversation.messages[i])) turns.push_back(i);
  if (only_last && turns.size() > 1) turns.erase(turns.begin(), turns.end() - 1);
  for (const size_t i : turns) {
    BRAID_ASSIGN(const jinja::Span span,
                 finder.find(i, out.spans.empty() ? 0 : out.spans.back().end));
    out.spans.push_back(span);
  }
  return out;
}

}  // namespace braid::inline data
