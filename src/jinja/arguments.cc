#include "jinja/arguments.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/compare.h"

namespace braid::jinja {

Result<Bound> Bound::bind(const char* function, Arguments& arguments,
                          std::initializer_list<const char*> parameters, size_t required) {
  Bound out;
  out.function_ = function;
  out.values_.resize(parameters.size());
  if (arguments.positional.size() > parameters.size())
    return invalid_input(cat(function, " takes at most ", parameters.size(), " arguments, not ",
                             arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    out.values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto* found =
        std::find_if(parameters.begin(), parameters.end(), [&wanted = name](const char* parameter) {
          return parameter != nullptr && wanted == parameter;
        });
    if (found == parameters.end())
      return invalid_input(cat(function, " takes no argument named '", name, "'"));
    std::optional<Value>& slot = out.values_[static_cast<size_t>(found - parameters.begin())];
    if (slot) return invalid_input(cat(function, " gets its argument '", name, "' twice"));
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i)
    if (!out.values_[i])
      return invalid_input(cat(function, " needs ", required, " arguments, the one at place ",
                               i + 1, " is missing"));
  return out;
}

Result<int64_t> Bound::integer(size_t index, int64_t fallback) const {
  if (!has(index)) return fallback;
  return to_index(at(index)).at(function_);
}

Result<std::string> Bound::text(size_t index) const {
  BRAID_TRY(check_defined(at(index)));
  if (at(index).is_text()) return at(index).text();
  return invalid_input(cat(function_, " wants a text, not a ", at(index).type_name()));
}

Result<int64_t> to_index(const Value& value) {
  BRAID_TRY(check_defined(value));
  if (value.is_integral()) return value.integer();
  return invalid_input(cat("'", value.type_name(), "' object cannot be interpreted as an integer"));
}

}  // namespace braid::jinja
