// Texts that count as escaped already, Python's Markup: what is made of one counts as escaped too,
// and what goes into it is escaped first. Pure functions, apart from the budget.
#pragma once

#include <string>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

// The value as a text with its HTML escaped; a text that counts as escaped as it is.
Result<Value> escape(const Value& value, Budget& budget);

// A text, or the texts in a list or tuple, as texts that count as escaped; other values unchanged.
Value marked(const Value& value);

// `value`, marked if `origin` counts as escaped.
Value marked_like(const Value& origin, Value value);

// Escapes those arguments of a method of Markup that get into its text. The first one is the text.
Status escape_arguments(const std::string& method, Arguments* arguments, Budget& budget);

}  // namespace braid::jinja
