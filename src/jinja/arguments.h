// The arguments of one call, matched with the parameters of the function. A value.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

class Bound {
 public:
  // Parameters in order; one whose name is nullptr can be given by position only. The first
  // `required` ones must be given. Errors name the function.
  static Result<Bound> bind(const char* function, Arguments& arguments,
                            std::initializer_list<const char*> parameters, size_t required);

  bool has(size_t index) const { return values_[index].has_value(); }
  // REQUIRES: has(index).
  const Value& at(size_t index) const { return *values_[index]; }
  // Given and not None.
  bool given(size_t index) const { return has(index) && !at(index).is_none(); }
  Value or_else(size_t index, Value fallback) const { return has(index) ? at(index) : fallback; }
  bool truth(size_t index, bool fallback) const {
    return has(index) ? at(index).truth() : fallback;
  }
  Result<int64_t> integer(size_t index, int64_t fallback) const;
  Result<std::string> text(size_t index) const;

 private:
  const char* function_ = "";
  std::vector<std::optional<Value>> values_;
};

// An integer as Python's __index__ takes it: int or bool.
Result<int64_t> to_index(const Value& value);

}  // namespace braid::jinja
