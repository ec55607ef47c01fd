// The filters, tests and functions that every template finds. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "jinja/objects.h"

namespace braid::jinja {

// A filter or a test; the first argument is the value in front of it.
using Builtin = Result<Value> (*)(Budget&, Arguments&);

// By name; null for an unknown one.
Builtin find_filter(const std::string& name);
Builtin find_test(const std::string& name);

// The present time in a format of strftime.
using TimeWriter = std::function<std::string(const std::string& format)>;

// A global function by name. `now` is what strftime_now calls.
std::optional<Value> find_global(const std::string& name, const TimeWriter& now);

// A test's answer for a value.
Result<bool> passes(Builtin test, Budget& budget, Arguments arguments);

// A filter that gives a generator: its errors show when the items are visited.
template <Result<Value> (*kFilter)(Budget&, Arguments&)>
Result<Value> deferred(Budget& budget, Arguments& arguments) {
  Result<Value> made = kFilter(budget, arguments);
  if (made.ok()) return made;
  return make_object<Generator>(std::vector<Value>(), made.status());
}

// Filters that lay out texts.
Result<Value> pprint_filter(Budget& budget, Arguments& arguments);
Result<Value> urlize_filter(Budget& budget, Arguments& arguments);
Result<Value> wordwrap_filter(Budget& budget, Arguments& arguments);

// Parts of the table of filters.
Builtin find_text_filter(const std::string& name);
Builtin find_number_filter(const std::string& name);
Builtin find_sequence_filter(const std::string& name);
Builtin find_selection_filter(const std::string& name);

}  // namespace braid::jinja
