#include "data/chat/token_mask.h"

#include <algorithm>

namespace braid::inline data {
namespace {

// Byte range of each token, or nothing when the tokens do not decode to the text.
Result<std::optional<std::vector<jinja::Span>>> token_spans(const Tokenizer& tokenizer,
                                                            const std::string& text,
                                                            const std::vector<int32_t>& ids) {
  IncrementalDecoder decoder(tokenizer, false);
  std::vector<jinja::Span> spans(ids.size());
  size_t at = 0, waiting = 0;  // tokens from `waiting` on share the next piece
  std::string decoded;
  const auto take = [&](const std::string& piece, size_t behind) {
    decoded += piece;
    for (size_t i = waiting; i < behind; ++i) spans[i] = {at, at + piece.size()};
    at += piece.size();
    waiting = behind;
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    BRAID_ASSIGN(const std::string piece, decoder.push(ids[i]));
    if (!piece.empty()) take(piece, i + 1);
  }
  BRAID_ASSIGN(const std::string rest, decoder.finish());
  take(rest, ids.size());
  if (decoded != text) return std::optional<std::vector<jinja::Span>>();
  return std::optional<std::vector<jinja::Span>>(std::move(spans));
}

// Tokens that the first bytes of the text have in common with the whole, and those they have alone.
struct Border {
  size_t common = 0, alone = 0;
};

Result<Border> border_at(const Tokenizer& tokenizer, const std::string& text,
                         const std::vector<int32_t>& ids, size_t byte) {
  BRAID_ASSIGN(const std::vector<int32_t> part, tokenizer.encode(text.substr(0, byte), false));
  const size_t most = std::min(part.size(), ids.size());
  const auto end =
      std::mismatch(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(most), part.begin());
  const auto common = static_cast<size_t>(end.first - ids.begin());
  return Border{common, part.size() - common};
}

}  // namespace

Result<std::vector<uint8_t>> token_mask(const Tokenizer& tokenizer, const std::string& text,
                                        const std::vector<int32_t>& ids,
                                        const std::vector<jinja::Span>& spans) {
  std::vector<uint8_t> mask(ids.size(), 0);
  BRAID_ASSIGN(const auto places, token_spans(tokenizer, text, ids));
  for (const jinja::Span& span : spans) {
    if (span.begin == span.end) continue;
    if (places) {
      for (size_t i = 0; i < ids.size(); ++i)
        if ((*places)[i].begin < span.end && (*places)[i].end > span.begin) mask[i] = 1;
      continue;
    }
    BRAID_ASSIGN(const Border begin, border_at(tokenizer, text, ids, span.begin));
    BRAID_ASSIGN(const Border end, border_at(tokenizer, text, ids, span.end));
    const size_t last = std::min(ids.size(), end.common + (end.alone > 0 ? 1 : 0));
    for (size_t i = begin.common; i < last; ++i) mask[i] = 1;
  }
  return mask;
}

}  // namespace braid::inline data
