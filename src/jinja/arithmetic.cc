#include "jinja/arithmetic.h"

#include <cmath>

#include "base/text.h"
#include "jinja/compare.h"
#include "jinja/format.h"
#include "jinja/markup.h"

namespace braid::jinja {
namespace {

const char* operator_name(Operator op) {
  constexpr const char* kNames[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kNames[static_cast<int>(op)];
}

Status bad_operands(Operator op, const Value& a, const Value& b) {
  return invalid_input(cat("unsupported operand types for ", operator_name(op), ": '",
                           a.type_name(), "' and '", b.type_name(), "'"));
}

Status too_large() { return invalid_input("an integer does not fit into 64 bits"); }

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

// Python's float //: the floor of the quotient, made from the remainder so that both agree.
double float_floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return invalid_input("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 63) return too_large();
  int64_t out = 1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(out, base, &out)) return too_large();
  return Value(out);
}

Result<Value> integer_operation(Operator op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case Operator::kPower:
      return integer_power(a, b);
    default:
      if (b == 0) return invalid_input("division by zero");
      if (op == Operator::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
      if (b == -1) {
        overflow = op == Operator::kFloorDivide && __builtin_sub_overflow(int64_t{0}, a, &out);
        break;
      }
      const bool adjust = a % b != 0 && (a < 0) != (b < 0);
      out = op == Operator::kFloorDivide ? a / b - (adjust ? 1 : 0) : a % b + (adjust ? b : 0);
  }
  return overflow ? Result<Value>(too_large()) : Result<Value>(Value(out));
}

Result<Value> float_operation(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kPower: {
      if (a == 0 && b < 0) return invalid_input("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b))
        return invalid_input("the power is a complex number");
      const double out = std::pow(a, b);
      if (std::isinf(out) && std::isfinite(a) && std::isfinite(b))
        return invalid_input("the power is too large for a float");
      return Value(out);
    }
    default:
      if (b == 0) return invalid_input("float division by zero");
      if (op == Operator::kDivide) return Value(a / b);
      return Value(op == Operator::kModulo ? float_modulo(a, b) : float_floor_divide(a, b));
  }
}

Result<Value> repeat(const Value& value, int64_t times, Budget& budget) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  if (value.is_text()) {
    const std::string& text = value.text();
    if (count > 0 && text.size() > INT64_MAX / count) return budget.spend_text(UINT64_MAX);
    BRAID_TRY(budget.spend_text(text.size() * count));
    std::string out;
    for (uint64_t i = 0; i < count; ++i) out += text;
    return marked_like(value, Value(std::move(out)));
  }
  const std::vector<Value>& items = value.items();
  if (count > 0 && items.size() > INT64_MAX / count) return budget.spend(UINT64_MAX);
  BRAID_TRY(budget.spend(items.size() * count));
  std::vector<Value> out;
  for (uint64_t i = 0; i < count && !items.empty(); ++i)
    out.insert(out.end(), items.begin(), items.end());
  return value.is_tuple() ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

bool is_repeatable(const Value& value) { return value.is_text() || value.is_sequence(); }

// A text that counts as escaped escapes the other one.
Result<Value> add_safe(const Value& a, const Value& b, Budget& budget) {
  BRAID_ASSIGN(const Value left, escape(a, budget));
  BRAID_ASSIGN(const Value right, escape(b, budget));
  return Value::safe(left.text() + right.text());
}

Result<Value> add_sequences(const Value& a, const Value& b, Budget& budget) {
  if (a.is_safe() || b.is_safe()) return add_safe(a, b, budget);
  if (a.is_text()) {
    BRAID_TRY(budget.spend_text(a.text().size() + b.text().size()));
    return Value(a.text() + b.text());
  }
  BRAID_TRY(budget.spend(a.items().size() + b.items().size()));
  std::vector<Value> out = a.items();
  out.insert(out.end(), b.items().begin(), b.items().end());
  return a.is_tuple() ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

}  // namespace

Result<Value> apply(Operator op, const Value& a, const Value& b, Budget& budget) {
  if (op == Operator::kModulo && a.is_text()) return percent_format(a, b, budget);
  BRAID_TRY(check_defined(a));
  BRAID_TRY(check_defined(b));
  if (a.is_integral() && b.is_integral()) return integer_operation(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return float_operation(op, a.number(), b.number());
  if (op == Operator::kAdd) {
    const bool both_lists = a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple();
    if ((a.is_text() && b.is_text()) || both_lists) return add_sequences(a, b, budget);
  }
  if (op == Operator::kMultiply) {
    if (is_repeatable(a) && b.is_integral()) return repeat(a, b.integer(), budget);
    if (is_repeatable(b) && a.is_integral()) return repeat(b, a.integer(), budget);
  }
  return bad_operands(op, a, b);
}

Result<Value> negate(const Value& value) {
  BRAID_TRY(check_defined(value));
  if (value.is_integral()) {
    if (value.integer() == INT64_MIN) return too_large();
    return Value(-value.integer());
  }
  if (value.is_float()) return Value(-value.number());
  return invalid_input(cat("bad operand type for unary -: '", value.type_name(), "'"));
}

Result<Value> plus(const Value& value) {
  BRAID_TRY(check_defined(value));
  if (value.is_integral()) return Value(value.integer());
  if (value.is_float()) return value;
  return invalid_input(cat("bad operand type for unary +: '", value.type_name(), "'"));
}

}  // namespace braid::jinja
