// Filters that make numbers.
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

// Digits with single underscores between them lose these; false for any other underscore.
bool drop_underscores(std::string* text) {
  std::string out;
  for (size_t i = 0; i < text->size(); ++i) {
    const char c = (*text)[i];
    if (c != '_') {
      out += c;
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text->size() && std::isalnum(static_cast<unsigned char>((*text)[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return false;
  }
  *text = out;
  return true;
}

Status integer_too_large() { return invalid_input("the integer does not fit into 64 bits"); }

// Python's int(text, base); nothing for a text that is none.
Result<std::optional<int64_t>> parse_integer(const std::string& source, int64_t base) {
  std::string text = lower(strip(source));
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.erase(0, 1);
  const auto has_mark = [&](char mark, int64_t own) {
    return (base == own || base == 0) && text.size() > 2 && text[0] == '0' && text[1] == mark;
  };
  for (const auto& [mark, own] : {std::pair('x', 16), std::pair('o', 8), std::pair('b', 2)})
    if (has_mark(mark, own)) {
      text.erase(0, text[2] == '_' ? 3 : 2);
      base = own;
      break;
    }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || !drop_underscores(&text) || text.empty())
    return std::optional<int64_t>();
  int64_t value = 0;
  const auto parsed =
      std::from_chars(text.data(), text.data() + text.size(), value, static_cast<int>(base));
  if (parsed.ptr != text.data() + text.size() || text[0] == '-') return std::optional<int64_t>();
  if (parsed.ec == std::errc::result_out_of_range) return integer_too_large();
  if (parsed.ec != std::errc()) return std::optional<int64_t>();
  return std::optional<int64_t>(negative ? -value : value);
}

// Python's float(text).
std::optional<double> parse_float(const std::string& source) {
  std::string text = lower(strip(source));
  const double sign = !text.empty() && text[0] == '-' ? -1 : 1;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.erase(0, 1);
  if (text == "inf" || text == "infinity") return sign * INFINITY;
  if (text == "nan") return NAN;
  if (!drop_underscores(&text) || text.find_first_not_of("0123456789.e+-") != std::string::npos ||
      text.empty() || text[0] == '-' || text[0] == '+')
    return std::nullopt;
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range)
    return sign * (text.find("e-") == std::string::npos ? INFINITY : 0.0);
  return parsed.ec == std::errc() ? std::optional<double>(sign * value) : std::nullopt;
}

std::optional<Value> float_to_int(double value) {
  if (!std::isfinite(value) || std::fabs(value) >= 9.2e18) return std::nullopt;
  return Value(static_cast<int64_t>(value));
}

std::optional<double> to_float(const Value& value) {
  if (value.is_number()) return value.number();
  return value.is_text() ? parse_float(value.text()) : std::nullopt;
}

Result<Value> int_filter(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("int", arguments, {"value", "default", "base"}, 1));
  const Value& value = bound.at(0);
  BRAID_TRY(check_defined(value));
  BRAID_ASSIGN(const int64_t base, bound.integer(2, 10));
  if (value.is_integral()) return Value(value.integer());
  if (value.is_text()) {
    BRAID_ASSIGN(const std::optional<int64_t> parsed, parse_integer(value.text(), base));
    if (parsed) return Value(*parsed);
  }
  if (const std::optional<double> number = to_float(value)) {
    if (std::isinf(*number) && value.is_float())
      return invalid_input("cannot convert float infinity to integer");
    if (const std::optional<Value> whole = float_to_int(*number)) return *whole;
    if (std::isfinite(*number)) return integer_too_large();
  }
  return bound.or_else(1, Value(0));
}

Result<Value> float_filter(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("float", arguments, {"value", "default"}, 1));
  BRAID_TRY(check_defined(bound.at(0)));
  if (const std::optional<double> number = to_float(bound.at(0))) return Value(*number);
  return bound.or_else(1, Value(0.0));
}

Result<Value> abs_filter(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("abs", arguments, {nullptr}, 1));
  BRAID_TRY(check_defined(bound.at(0)));
  if (bound.at(0).is_float()) return Value(std::fabs(bound.at(0).number()));
  if (!bound.at(0).is_integral())
    return invalid_input(cat("bad operand type for abs(): '", bound.at(0).type_name(), "'"));
  const int64_t value = bound.at(0).integer();
  return value < 0 ? negate(Value(value)) : Result<Value>(Value(value));
}

// Half to even in decimal digits, which is what Python does: the exact decimal form decides.
double round_decimal(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 22) return value;
  if (digits >= 0) {
    char buffer[400];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed,
                                   static_cast<int>(digits));
    double out = value;
    std::from_chars(buffer, end.ptr, out);
    return out;
  }
  const double unit = std::pow(10.0, static_cast<double>(std::min<int64_t>(-digits, 308)));
  return std::nearbyint(value / unit) * unit;
}

Result<Value> round_filter(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("round", arguments, {"value", "precision", "method"}, 1));
  const Value& value = bound.at(0);
  BRAID_ASSIGN(const int64_t digits, bound.integer(1, 0));
  std::string method = "common";
  if (bound.has(2)) {
    BRAID_ASSIGN(method, bound.text(2));
  }
  if (method != "common" && method != "ceil" && method != "floor")
    return invalid_input("method must be common, ceil or floor");
  BRAID_TRY(check_defined(value));
  if (!value.is_number())
    return invalid_input(cat("type ", value.type_name(), " cannot be rounded"));
  if (method == "common") {
    if (value.is_float()) return Value(round_decimal(value.number(), digits));
    if (digits >= 0) return Value(value.integer());
    return Value(static_cast<int64_t>(round_decimal(value.number(), digits)));
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Result<Value> length_filter(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("length", arguments, {nullptr}, 1));
  if (const std::optional<size_t> length = length_of(bound.at(0))) return Value::of_size(*length);
  return invalid_input(cat("object of type '", bound.at(0).type_name(), "' has no len()"));
}

}  // namespace

Builtin find_number_filter(const std::string& name) {
  if (name == "abs") return abs_filter;
  if (name == "count" || name == "length") return length_filter;
  if (name == "float") return float_filter;
  if (name == "int") return int_filter;
  return name == "round" ? round_filter : nullptr;
}

}  // namespace braid::jinja
