#include "jinja/quoted_text.h"

#include "base/text.h"
#include "base/utf8.h"

namespace braid::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : 99;
}

class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  Result<std::string> run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        out_ += text_[at_++];
        continue;
      }
      const char c = text_[at_ + 1];
      at_ += 2;
      BRAID_TRY(escape(c));
    }
    return std::move(out_);
  }

 private:
  Status escape(char c) {
    constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t found = kNames.find(c); found != std::string_view::npos) {
      out_ += kValues[found];
    } else if (c == '\n') {
      // A line that goes on.
    } else if (c >= '0' && c <= '7') {
      octal(c);
    } else if (c == 'x') {
      return hexadecimal(2);
    } else if (c == 'u' || c == 'U') {
      return hexadecimal(c == 'u' ? 4 : 8);
    } else if (c == 'N') {
      return invalid_input("\\N{…} is not supported; write the character itself");
    } else {
      out_ += '\\';
      out_ += c;
    }
    return ok_status();
  }

  void octal(char first) {
    char32_t value = static_cast<char32_t>(first - '0');
    for (int i = 0; i < 2 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
      value = value * 8 + static_cast<char32_t>(text_[at_++] - '0');
    append_utf8(value, &out_);
  }

  Status read_digits(int count, char32_t* value) {
    *value = 0;
    for (int i = 0; i < count; ++i, ++at_) {
      const int digit = at_ < text_.size() ? digit_value(text_[at_]) : 99;
      if (digit == 99)
        return invalid_input(cat("an escape in a text needs ", count, " hex digits"));
      *value = *value * 16 + static_cast<char32_t>(digit);
    }
    return ok_status();
  }

  Status hexadecimal(int count) {
    char32_t value = 0;
    BRAID_TRY(read_digits(count, &value));
    if (value >= 0xD800 && value < 0xE000)  // Python keeps both halves of a pair apart, too
      return invalid_input(
          "an escape in a text names half of a character; write the character itself or \\U and "
          "eight digits");
    if (value > 0x10FFFF) return invalid_input("an escape in a text names no character");
    append_utf8(value, &out_);
    return ok_status();
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> unescaped(std::string_view text) { return Unescaper(text).run(); }

}  // namespace braid::jinja
