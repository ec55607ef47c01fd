// Python's operators + - * / // % ** on the values of a template.
#pragma once

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// The result, or an error for types that the operator does not take and for integers that do not
// fit into 64 bits.
Result<Value> apply(Operator op, const Value& a, const Value& b, Budget& budget);
Result<Value> negate(const Value& value);
// Unary plus.
Result<Value> plus(const Value& value);

}  // namespace braid::jinja
