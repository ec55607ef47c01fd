#include "jinja/budget.h"

#include <algorithm>

#include "base/text.h"

namespace braid::jinja {

Status Budget::spend(uint64_t steps) {
  const auto limit = static_cast<uint64_t>(limits_.steps);
  used_ = steps > limit ? limit + 1 : used_ + steps;
  if (used_ <= limit) return ok_status();
  return invalid_input(
      cat("the template takes more than ", limit, " steps; it is much too long or never ends"));
}

Status Budget::spend_text(uint64_t bytes) { return grow(0, bytes); }

Status Budget::grow(uint64_t length, uint64_t bytes) {
  const auto limit = static_cast<uint64_t>(limits_.text_bytes);
  if (bytes > limit || length + bytes > limit)
    return invalid_input(cat("a text is longer than the limit of ", limit, " bytes"));
  return spend(1 + bytes / 64);
}

Status Budget::enter() {
  if (++depth_ <= limits_.depth) return ok_status();
  return invalid_input(cat("expressions, blocks or macros are nested deeper than ", limits_.depth,
                           " levels; does a macro call itself without end?"));
}

Status Budget::check_value_depth(int depth) const {
  if (depth <= limits_.value_depth) return ok_status();
  return invalid_input(
      cat("lists and dictionaries are nested deeper than ", limits_.value_depth, " levels"));
}

bool Budget::begin_writing(const void* value) {
  if (std::find(writing_.begin(), writing_.end(), value) != writing_.end()) return false;
  writing_.push_back(value);
  return true;
}

}  // namespace braid::jinja
