#include "interop/arithmetic.h"

#include <cctype>

#include "base/text.h"

namespace braid::foreign {
namespace {

using Value = std::optional<int64_t>;
using LookUp = std::function<std::optional<std::string>(const std::string&)>;

constexpr int kDeepestExpression = 32;

Value combine(char op, Value a, Value b) {
  int64_t out = 0;
  if (!a || !b) return std::nullopt;
  switch (op) {
    case '+':
      return __builtin_add_overflow(*a, *b, &out) ? std::nullopt : Value(out);
    case '-':
      return __builtin_sub_overflow(*a, *b, &out) ? std::nullopt : Value(out);
    case '*':
      return __builtin_mul_overflow(*a, *b, &out) ? std::nullopt : Value(out);
    default:
      if (*b == 0 || *b == -1) return std::nullopt;
      return op == '/' ? *a / *b : *a % *b;
  }
}

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const LookUp& look_up) : text_(text), look_up_(look_up) {}

  Value whole() {
    const Value value = sum(0);
    return next() == '\0' ? value : std::nullopt;
  }

 private:
  char next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Value sum(int depth) {
    Value left = product(depth);
    for (char op = next(); op == '+' || op == '-'; op = next()) {
      ++at_;
      left = combine(op, left, product(depth));
    }
    return left;
  }

  Value product(int depth) {
    Value left = factor(depth);
    for (char op = next(); op == '*' || op == '/' || op == '%'; op = next()) {
      ++at_;
      left = combine(op, left, factor(depth));
    }
    return left;
  }

  Value factor(int depth) {
    const char c = next();
    if (depth > kDeepestExpression || c == '\0') return std::nullopt;
    if (c == '-') return ++at_, combine('-', 0, factor(depth + 1));
    if (c != '(') return term();
    ++at_;
    const Value inside = sum(depth + 1);
    if (next() != ')') return std::nullopt;
    ++at_;
    return inside;
  }

  // A number or a name.
  Value term() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (word.empty()) return std::nullopt;
    int64_t value = 0;
    if (std::isdigit(static_cast<unsigned char>(word[0])))
      return parse_int(word, &value) ? Value(value) : std::nullopt;
    const auto found = look_up_(word);
    return found && parse_int(trim(*found), &value) ? Value(value) : std::nullopt;
  }

  std::string_view text_;
  const LookUp& look_up_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> shell_arithmetic(std::string_view text, const LookUp& look_up) {
  return Arithmetic(text, look_up).whole();
}

}  // namespace braid::foreign
