// The methods of texts, lists, tuples, dictionaries and numbers.
#pragma once

#include <optional>
#include <string>

#include "jinja/objects.h"

namespace braid::jinja {

// The bound method of a value; nothing when its type has none of the name.
std::optional<Value> find_method(const Value& value, const std::string& name);

// A table's entry; the body gets the value itself as the first argument.
struct MethodEntry {
  const char* name;
  Method::Body body;
};

// The method of str with this name, or nullptr.
const MethodEntry* find_text_method(const std::string& name);

// str.format and str.format_map: fields in braces, with conversions and format specifications.
Result<Value> format_method(Budget& budget, Arguments& arguments);
Result<Value> format_map_method(Budget& budget, Arguments& arguments);

// Python's str.replace: at most `most` occurrences, all of them when it is negative.
struct Replacement {
  std::string old_text, new_text;
  int64_t most = -1;
};
Result<Value> replaced(const std::string& text, const Replacement& what, Budget& budget);

}  // namespace braid::jinja
