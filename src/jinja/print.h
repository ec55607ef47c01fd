// Values as text: Python's str(), repr() and json.dumps(). Pure functions, apart from the budget.
#pragma once

#include <optional>
#include <string>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

// Python's str(): what {{ value }} writes.
Result<std::string> to_text(const Value& value, Budget& budget);

// Python's repr().
Result<std::string> repr(const Value& value, Budget& budget);

// A float as Python writes it: the shortest digits that read back as the same number.
std::string float_text(double value);

// Python's repr() of a text, with quotes.
std::string quoted(std::string_view text);

// The options of Python's json.dumps that a template can give to the filter tojson.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
Result<std::string> to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace braid::jinja
