// The filter wordwrap: lines of a text cut to a width, as Python's textwrap does it with
// expand_tabs and replace_whitespace off.
#include <algorithm>
#include <deque>

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/markup.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

using Points = std::u32string;

bool is_blank(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool is_letter(char32_t c) { return is_word(c) && !is_decimal(c); }

bool is_word_or_mark(char32_t c) {
  return is_word(c) || std::u32string_view(U"!\"'&.,?").find(c) != std::u32string_view::npos;
}

bool all_blank(const Points& text) { return std::all_of(text.begin(), text.end(), is_space); }

// Cuts a line into blanks and words; with `at_hyphens` words also behind the hyphens in them, and
// around dashes of two hyphens or more.
class Chunks {
 public:
  Chunks(const Points& text, bool at_hyphens) : text_(text), at_hyphens_(at_hyphens) {}

  std::deque<Points> all() const {
    std::deque<Points> out;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = end_of(at);
      out.push_back(text_.substr(at, end - at));
      at = end;
    }
    return out;
  }

 private:
  bool has_letter(size_t at) const { return at < text_.size() && is_letter(text_[at]); }
  bool has_hyphen(size_t at) const { return at < text_.size() && text_[at] == '-'; }

  size_t end_of(size_t at) const {
    size_t end = at;
    if (is_blank(text_[at])) {
      while (end < text_.size() && is_blank(text_[end])) ++end;
      return end;
    }
    if (at_hyphens_ && begins_dash(at)) {
      while (has_hyphen(end)) ++end;
      return end;
    }
    for (end = at + 1; end < text_.size() && !is_blank(text_[end]); ++end) {
      if (!at_hyphens_) continue;
      if (ends_part(end)) return end + 1;
      if (begins_dash(end)) return end;
    }
    return end;
  }

  // Hyphens between a word or its mark and a word.
  bool begins_dash(size_t at) const {
    if (at == 0 || !is_word_or_mark(text_[at - 1]) || !has_hyphen(at) || !has_hyphen(at + 1))
      return false;
    while (has_hyphen(at)) ++at;
    return at < text_.size() && is_word(text_[at]);
  }

  // A hyphen behind two letters (or a letter, a hyphen and a letter) and before two.
  bool ends_part(size_t at) const {
    if (!has_hyphen(at) || at < 2 || !has_letter(at - 1)) return false;
    const bool behind = has_letter(at - 2) || (at >= 3 && has_hyphen(at - 2) && has_letter(at - 3));
    return behind && has_letter(at + 1) &&
           (has_letter(at + 2) || (has_hyphen(at + 2) && has_letter(at + 3)));
  }

  const Points& text_;
  const bool at_hyphens_;
};

struct WrapOptions {
  size_t width = 0;
  bool break_long_words = true, break_on_hyphens = true;
  bool chunks_at_hyphens = true;
};

// Puts what fits of a word that is longer than a line into the rest of this one.
void place_long_word(std::deque<Points>& chunks, size_t room, const WrapOptions& options,
                     std::vector<Points>& line) {
  Points& word = chunks.front();
  if (options.break_long_words) {
    size_t end = room;
    if (options.break_on_hyphens && room > 0) {
      const size_t hyphen = word.rfind('-', room - 1);
      const bool within =
          hyphen != Points::npos && hyphen > 0 && word.find_first_not_of(U'-') < hyphen;
      if (within) end = hyphen + 1;
    }
    line.push_back(word.substr(0, end));
    word.erase(0, end);
  } else if (line.empty()) {
    line.push_back(std::move(word));
    chunks.pop_front();
  }
}

std::vector<Points> wrap(const Points& text, const WrapOptions& options) {
  std::deque<Points> chunks = Chunks(text, options.chunks_at_hyphens).all();
  std::vector<Points> lines;
  while (!chunks.empty()) {
    std::vector<Points> line;
    size_t used = 0;
    if (!lines.empty() && all_blank(chunks.front())) chunks.pop_front();
    while (!chunks.empty() && used + chunks.front().size() <= options.width) {
      used += chunks.front().size();
      line.push_back(std::move(chunks.front()));
      chunks.pop_front();
    }
    if (!chunks.empty() && chunks.front().size() > options.width)
      place_long_word(chunks, options.width - used, options, line);
    if (!line.empty() && all_blank(line.back())) line.pop_back();
    if (line.empty()) continue;
    lines.emplace_back();
    for (const Points& part : line) lines.back() += part;
  }
  return lines;
}

Result<WrapOptions> wrap_options(const Bound& bound) {
  BRAID_ASSIGN(const int64_t width, bound.integer(1, 79));
  if (width <= 0) return invalid_input(cat("invalid width ", width, " (must be > 0)"));
  WrapOptions out;
  out.width = static_cast<size_t>(width);
  out.break_long_words = bound.truth(2, true);
  out.break_on_hyphens = bound.truth(4, true);
  out.chunks_at_hyphens = out.break_on_hyphens && (!bound.has(4) || bound.at(4).is_bool());
  return out;
}

}  // namespace

Result<Value> wordwrap_filter(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(
      const Bound bound,
      Bound::bind("wordwrap", arguments,
                  {"s", "width", "break_long_words", "wrapstring", "break_on_hyphens"}, 1));
  BRAID_ASSIGN(const std::string text, bound.text(0));
  std::string between = "\n";
  if (bound.given(3)) {
    BRAID_ASSIGN(between, bound.text(3));
  }
  const bool escapes = bound.given(3) && bound.at(3).is_safe();
  std::string out;
  const std::vector<std::string> paragraphs = split_lines(text, false);
  for (size_t i = 0; i < paragraphs.size(); ++i) {
    BRAID_ASSIGN(const WrapOptions options, wrap_options(bound));
    if (i > 0) out += between;
    const std::vector<Points> lines = wrap(to_code_points(paragraphs[i]), options);
    for (size_t j = 0; j < lines.size(); ++j) {
      const std::string line = to_utf8(lines[j]);
      const std::string piece = (j > 0 ? between : "") + (escapes ? escaped(line) : line);
      BRAID_TRY(budget.grow(out.size(), piece.size() + between.size()));
      out += piece;
    }
  }
  return escapes ? Value::safe(std::move(out)) : Value(std::move(out));
}

}  // namespace braid::jinja
