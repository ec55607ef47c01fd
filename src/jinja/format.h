// The two ways in which Python formats values into a text: "%s" % value and "{}".format(value).
#pragma once

#include <string>
#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

// How wide a field is and how its value is written; what follows the colon in "{:>8.2f}".
struct FieldFormat {
  std::string fill = " ";
  char align = 0;  // < > ^ =, 0 for the default of the type
  char sign = '-';
  bool alternate = false;  // #
  bool zeros = false;
  int64_t width = 0;
  char group = 0;          // , or _
  int64_t precision = -1;  // -1: not given
  char type = 0;
};

// A value in a field; an error for a type that does not fit the value.
Result<std::string> format_field(const Value& value, const FieldFormat& format, Budget& budget);

// Python's `text % arguments`: arguments is a tuple, a dictionary or one value.
// REQUIRES: text.is_text().
Result<Value> percent_format(const Value& text, const Value& arguments, Budget& budget);

}  // namespace braid::jinja
