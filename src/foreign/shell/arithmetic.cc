#include "foreign/shell/arithmetic.h"

#include <cctype>
#include <utility>

#include "base/text.h"

namespace braid::inline foreign {
namespace {

using Value = std::optional<int64_t>;
using LookUp = std::function<std::optional<std::string>(const std::string&)>;
using Assign = std::function<void(const std::string&, int64_t)>;

constexpr int kDeepestExpression = 32;
constexpr int64_t kLargestPower = 63;

// Two-character operators first: "<=" is not "<".
struct Operator {
  const char* text;
  int precedence;
};
constexpr Operator kOperators[] = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3}, {"<=", 4},
                                   {">=", 4}, {"**", 7}, {"<", 4},  {">", 4},  {"+", 5},
                                   {"-", 5},  {"*", 6},  {"/", 6},  {"%", 6}};

Value power(int64_t base, int64_t exponent) {
  int64_t out = 1;
  if (exponent < 0 || exponent > kLargestPower) return std::nullopt;
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(out, base, &out)) return std::nullopt;
  return out;
}

Value combine(std::string_view op, Value a, Value b) {
  int64_t out = 0;
  if (!a || !b) return std::nullopt;
  if (op == "+") return __builtin_add_overflow(*a, *b, &out) ? std::nullopt : Value(out);
  if (op == "-") return __builtin_sub_overflow(*a, *b, &out) ? std::nullopt : Value(out);
  if (op == "*") return __builtin_mul_overflow(*a, *b, &out) ? std::nullopt : Value(out);
  if (op == "**") return power(*a, *b);
  if (op == "||") return *a != 0 || *b != 0;
  if (op == "&&") return *a != 0 && *b != 0;
  if (op == "==") return *a == *b;
  if (op == "!=") return *a != *b;
  if (op == "<=") return *a <= *b;
  if (op == ">=") return *a >= *b;
  if (op == "<") return *a < *b;
  if (op == ">") return *a > *b;
  if (*b == 0 || *b == -1) return std::nullopt;
  return op == "/" ? *a / *b : *a % *b;
}

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const LookUp& look_up, const Assign& assign)
      : text_(text), look_up_(look_up), assign_(assign) {}

  Value whole() {
    Value value = choice(0);
    while (next() == ',') ++at_, value = choice(0);
    return next() == '\0' ? value : std::nullopt;
  }

 private:
  char next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool at(std::string_view what) { return next(), text_.substr(at_, what.size()) == what; }

  Value choice(int depth) {
    const Value condition = binary(1, depth);
    if (next() != '?') return condition;
    ++at_;
    const Value yes = choice(depth + 1);
    if (next() != ':' || depth > kDeepestExpression) return std::nullopt;
    ++at_;
    const Value no = choice(depth + 1);
    if (!condition) return std::nullopt;
    return *condition != 0 ? yes : no;
  }

  const Operator* operator_here(int least) {
    for (const Operator& op : kOperators)
      if (at(op.text)) {
        const size_t end = at_ + std::string_view(op.text).size();
        const bool assigns = op.precedence > 4 && end < text_.size() && text_[end] == '=';
        return op.precedence >= least && !assigns ? &op : nullptr;
      }
    return nullptr;
  }

  Value binary(int least, int depth) {
    Value left = factor(depth);
    for (const Operator* op = operator_here(least); op != nullptr; op = operator_here(least)) {
      at_ += std::string_view(op->text).size();
      left = combine(op->text, left, binary(op->precedence + 1, depth + 1));
    }
    return left;
  }

  Value factor(int depth) {
    const char c = next();
    if (depth > kDeepestExpression || c == '\0') return std::nullopt;
    if (at("++") || at("--")) {
      const char* op = c == '+' ? "+" : "-";
      at_ += 2;
      next();
      return changed(name(), op, 1).second;
    }
    if (c == '-') return ++at_, combine("-", 0, factor(depth + 1));
    if (c == '+') return ++at_, factor(depth + 1);
    if (c == '!') {
      ++at_;
      const Value value = factor(depth + 1);
      return value ? Value(*value == 0) : std::nullopt;
    }
    if (c != '(') return term(depth);
    ++at_;
    const Value inside = choice(depth + 1);
    if (next() != ')') return std::nullopt;
    ++at_;
    return inside;
  }

  std::string name() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  Value value_of(const std::string& word) const {
    int64_t value = 0;
    const auto found = look_up_(word);
    return found && parse_int(trim(*found), &value) ? Value(value) : std::nullopt;
  }

  // The value of a name before and after it was changed.
  std::pair<Value, Value> changed(const std::string& word, std::string_view op, Value by) {
    const Value before = value_of(word), after = op.empty() ? by : combine(op, before, by);
    if (!assign_ || word.empty() || !after) return {before, std::nullopt};
    assign_(word, *after);
    return {before, after};
  }

  // A number, a name, or a name that changes.
  Value term(int depth) {
    const std::string word = name();
    if (word.empty()) return std::nullopt;
    int64_t value = 0;
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0)
      return parse_int(word, &value) ? Value(value) : std::nullopt;
    if (at("++") || at("--")) {
      const char* op = text_[at_] == '+' ? "+" : "-";
      at_ += 2;
      return changed(word, op, 1).first;
    }
    for (const char* op : {"+", "-", "*", "/", "%"})
      if (at(cat(op, "="))) return at_ += 2, changed(word, op, choice(depth + 1)).second;
    if (next() == '=' && !at("==")) return ++at_, changed(word, "", choice(depth + 1)).second;
    return value_of(word);
  }

  std::string_view text_;
  const LookUp& look_up_;
  const Assign& assign_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> shell_arithmetic(std::string_view text, const LookUp& look_up,
                                        const Assign& assign) {
  return Arithmetic(text, look_up, assign).whole();
}

}  // namespace braid::inline foreign
