// Equality, order and membership as Python has them. Pure functions, apart from the budget.
#pragma once

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

// Equality of two hashable values, such as keys of a dictionary.
bool equal_scalars(const Value& a, const Value& b);

// Python's ==.
Result<bool> equal(const Value& a, const Value& b, Budget& budget);

// Python's <; values of types that have no order are an error.
Result<bool> less(const Value& a, const Value& b, Budget& budget);

// Python's `item in container`.
Result<bool> contains(const Value& container, const Value& item, Budget& budget);

// The error of doing anything with an undefined value; ok for all others.
Status check_defined(const Value& value);

}  // namespace braid::jinja
