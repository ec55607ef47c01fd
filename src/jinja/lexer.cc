#include "jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/quoted_text.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

bool is_digit_byte(char c) { return c >= '0' && c <= '9'; }

// Longest first, so that ** is not two *.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const size_t begin = find_tag();
      if (begin == std::string_view::npos) {
        add_data(source_.substr(at_));
        break;
      }
      BRAID_TRY(read_tag(begin));
    }
    at_ = source_.size();
    add(Token::Kind::kEnd, "", at_);
    return std::move(tokens_);
  }

 private:
  // The next {{, {% or {#.
  size_t find_tag() const {
    for (size_t at = at_; (at = source_.find('{', at)) != std::string_view::npos; ++at)
      if (at + 1 < source_.size() &&
          std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos)
        return at;
    return std::string_view::npos;
  }

  char peek(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  bool follows(size_t at, std::string_view text) const {
    return source_.compare(at, text.size(), text) == 0;
  }

  Status fail(const std::string& message) const {
    return invalid_input(cat("line ", line_, ": ", message));
  }

  // Everything up to `end` is read.
  void advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    line_begins_ = end > 0 && source_[end - 1] == '\n';
    at_ = end;
  }

  void add(Token::Kind kind, std::string text, size_t end) {
    tokens_.push_back({kind, std::move(text), Value(), line_, at_, end});
  }
  void add_data(std::string_view text) {
    if (!text.empty()) add(Token::Kind::kData, std::string(text), at_ + text.size());
  }

  // The text before a tag, without the white space that the tag takes away.
  std::string_view before_tag(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip(text, Side::kRight);
    if (sign == '+' || is_variable) return text;
    const size_t begin = text.rfind('\n') + 1;
    const bool at_line_begin = begin > 0 || line_begins_;
    const bool blank = begin < text.size() && strip(text.substr(begin)).empty();
    return at_line_begin && blank ? text.substr(0, begin) : text;
  }

  size_t skip_space(size_t at) const {
    for (size_t next = at; next < source_.size(); at = next)
      if (!is_space(next_code_point(source_, &next))) return at;
    return at;
  }

  // Where a closing mark with its sign and the white space that it takes ends; npos when none is
  // at this place.
  size_t closing(size_t at, std::string_view mark, bool trims_line) const {
    if (peek(at) == '-' && follows(at + 1, mark)) return skip_space(at + 1 + mark.size());
    if (trims_line && peek(at) == '+' && follows(at + 1, mark)) return at + 1 + mark.size();
    if (!follows(at, mark)) return std::string_view::npos;
    const size_t end = at + mark.size();
    return trims_line && peek(end) == '\n' ? end + 1 : end;
  }

  Status read_tag(size_t begin) {
    const char sign = peek(begin + 2) == '-' || peek(begin + 2) == '+' ? source_[begin + 2] : '\0';
    const char kind = source_[begin + 1];
    const std::string_view text = source_.substr(at_, begin - at_);
    add_data(before_tag(text, sign, kind == '{'));
    advance(begin);
    const size_t inside = begin + 2 + (sign != '\0' ? 1 : 0);
    if (kind == '#') return read_comment(inside);
    if (kind == '%') {
      if (const size_t end = raw_begin(inside); end != std::string_view::npos) return read_raw(end);
    }
    add(kind == '{' ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, "", inside);
    advance(inside);
    return read_inside(kind == '{');
  }

  Status read_comment(size_t inside) {
    for (size_t at = inside; at < source_.size(); ++at) {
      const size_t end = closing(at, "#}", true);
      if (end == std::string_view::npos) continue;
      advance(end);
      return ok_status();
    }
    return fail("the comment is never closed: missing #}");
  }

  // Behind "raw %}" when the tag is that.
  size_t raw_begin(size_t inside) const {
    const size_t name = skip_space(inside);
    if (!follows(name, "raw")) return std::string_view::npos;
    const size_t end = skip_space(name + 3);
    if (peek(end) == '-' && follows(end + 1, "%}")) return skip_space(end + 3);
    return follows(end, "%}") ? end + 2 : std::string_view::npos;
  }

  Status read_raw(size_t begin) {
    advance(begin);
    for (size_t at = begin; (at = source_.find("{%", at)) != std::string_view::npos; ++at) {
      const char sign = peek(at + 2) == '-' || peek(at + 2) == '+' ? source_[at + 2] : '\0';
      const size_t name = skip_space(at + 2 + (sign != '\0' ? 1 : 0));
      if (!follows(name, "endraw")) continue;
      const size_t end = closing(skip_space(name + 6), "%}", true);
      if (end == std::string_view::npos) continue;
      add_data(before_tag(source_.substr(at_, at - at_), sign, false));
      advance(end);
      return ok_status();
    }
    return fail("{% raw %} is never closed: missing {% endraw %}");
  }

  Status read_inside(bool is_variable) {
    std::string brackets;  // that wait for their closing ones
    while (at_ < source_.size()) {
      const size_t end = brackets.empty() ? closing(at_, is_variable ? "}}" : "%}", !is_variable)
                                          : std::string_view::npos;
      if (end != std::string_view::npos) {
        add(is_variable ? Token::Kind::kVariableEnd : Token::Kind::kBlockEnd, "", end);
        advance(end);
        return ok_status();
      }
      if (const size_t next = skip_space(at_); next != at_) {
        advance(next);
        continue;
      }
      BRAID_TRY(read_token(&brackets));
    }
    return fail(cat("the tag is never closed: missing ", is_variable ? "}}" : "%}"));
  }

  Status read_token(std::string* brackets) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return read_text(c);
    if (is_digit_byte(c)) return read_number();
    size_t behind = at_;
    const char32_t point = next_code_point(source_, &behind);
    if (is_word(point)) return read_name();
    for (const std::string_view op : kOperators)
      if (follows(at_, op)) return read_operator(op, brackets);
    return fail(cat("unexpected character '", source_.substr(at_, behind - at_), "'"));
  }

  Status read_operator(std::string_view op, std::string* brackets) {
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(op[0]) != std::string_view::npos) brackets->push_back(kClose[kOpen.find(op[0])]);
    if (kClose.find(op[0]) != std::string_view::npos) {
      if (brackets->empty() || brackets->back() != op[0]) return fail(cat("unexpected '", op, "'"));
      brackets->pop_back();
    }
    add(Token::Kind::kOperator, std::string(op), at_ + op.size());
    advance(at_ + op.size());
    return ok_status();
  }

  Status read_name() {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_word(next_code_point(source_, &next))) break;
      end = next;
    }
    add(Token::Kind::kName, std::string(source_.substr(at_, end - at_)), end);
    advance(end);
    return ok_status();
  }

  Status read_text(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail("a text in quotes is never closed");
    Result<std::string> value = unescaped(source_.substr(at_ + 1, end - at_ - 1));
    if (!value.ok()) return fail(value.status().message());
    add(Token::Kind::kText, std::move(*value), end + 1);
    advance(end + 1);
    return ok_status();
  }

  // Digits with single underscores between them, from `at`; where they end.
  size_t digits_end(size_t at, std::string_view digits) const {
    const auto fits = [&](size_t place) {
      return place < source_.size() && digits.find(source_[place]) != std::string_view::npos;
    };
    while (fits(at) || (peek(at) == '_' && fits(at + 1))) ++at;
    return at;
  }

  Status read_number() {
    constexpr std::string_view kDecimal = "0123456789";
    const size_t whole = digits_end(at_, kDecimal);
    size_t end = whole;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && peek(end) == '.' && is_digit_byte(peek(end + 1)))
      end = digits_end(end + 1, kDecimal);
    if (!after_dot && (peek(end) == 'e' || peek(end) == 'E')) {
      const size_t sign = peek(end + 1) == '+' || peek(end + 1) == '-' ? 1 : 0;
      if (is_digit_byte(peek(end + 1 + sign))) end = digits_end(end + 1 + sign, kDecimal);
    }
    if (end != whole) return add_float(end);
    return read_integer(whole);
  }

  std::string without_underscores(size_t end) const {
    std::string text(source_.substr(at_, end - at_));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    return text;
  }

  Status add_float(size_t end) {
    double value = 0;
    const std::string text = without_underscores(end);
    std::from_chars(text.data(), text.data() + text.size(), value);
    add(Token::Kind::kNumber, "", end);
    tokens_.back().number = Value(value);
    advance(end);
    return ok_status();
  }

  Status read_integer(size_t decimal_end) {
    int base = 10;
    size_t end = decimal_end;
    const char mark = static_cast<char>(peek(at_ + 1) | 0x20);
    if (source_[at_] == '0' && (mark == 'x' || mark == 'o' || mark == 'b')) {
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      const std::string_view digits = std::string_view("0123456789abcdefABCDEF");
      end = digits_end(at_ + 2, mark == 'x' ? digits : digits.substr(0, static_cast<size_t>(base)));
    } else if (source_[at_] == '0') {
      end = digits_end(at_, "0");  // 012 is 0 and 12, which no expression takes
    }
    const std::string text = without_underscores(end).substr(base == 10 ? 0 : 2);
    int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (parsed.ec != std::errc() || text.empty())
      return fail(cat("the number ", source_.substr(at_, end - at_), " is none, or too large"));
    add(Token::Kind::kNumber, "", end);
    tokens_.back().number = Value(value);
    advance(end);
    return ok_status();
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Tokenizer(source).run(); }

}  // namespace braid::jinja
