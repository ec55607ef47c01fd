#include "jinja/compare.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/objects.h"

namespace braid::jinja {
namespace {

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  return a.number() == b.number();
}

Result<bool> equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items()) {
    const Value* other = b.find(key);
    if (other == nullptr) return false;
    BRAID_ASSIGN(const bool same, equal(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

// The first place at which two lists differ, or the length of the shorter one.
Result<size_t> first_difference(const std::vector<Value>& a, const std::vector<Value>& b,
                                Budget& budget) {
  const size_t common = std::min(a.size(), b.size());
  for (size_t i = 0; i < common; ++i) {
    BRAID_ASSIGN(const bool same, equal(a[i], b[i], budget));
    if (!same) return i;
  }
  return common;
}

Result<bool> contains_text(const std::string& container, const Value& item, Budget& budget) {
  if (!item.is_text())
    return invalid_input(
        cat("'in <string>' requires string as left operand, not ", item.type_name()));
  BRAID_TRY(budget.spend(1 + container.size() / 64));
  return container.find(item.text()) != std::string::npos;
}

Status unhashable(const Value& value) {
  return invalid_input(cat("unhashable type: '", value.type_name(), "'"));
}

}  // namespace

bool equal_scalars(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return a.text() == b.text();
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.is_tuple() && b.is_tuple())
    return a.items().size() == b.items().size() &&
           std::equal(a.items().begin(), a.items().end(), b.items().begin(), equal_scalars);
  if (a.is_undefined()) return b.is_undefined();
  return a.same_as(b);
}

Result<bool> equal(const Value& a, const Value& b, Budget& budget) {
  BRAID_TRY(budget.spend(1 + (a.is_text() ? a.text().size() / 64 : 0)));
  if (a.is_sequence() && b.is_sequence()) {
    if (a.is_tuple() != b.is_tuple() || a.items().size() != b.items().size()) return false;
    BRAID_ASSIGN(const size_t same, first_difference(a.items(), b.items(), budget));
    return same == a.items().size();
  }
  if (a.is_dict() && b.is_dict()) return equal_dicts(a.dict(), b.dict(), budget);
  if (const auto* range = a.as<Range>())
    if (const auto* other = b.as<Range>()) return range->same_items(*other);
  return equal_scalars(a, b);
}

Result<bool> less(const Value& a, const Value& b, Budget& budget) {
  BRAID_TRY(check_defined(a));
  BRAID_TRY(check_defined(b));
  BRAID_TRY(budget.spend(1));
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_text() && b.is_text()) return a.text() < b.text();
  if (a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    BRAID_ASSIGN(const size_t place, first_difference(a.items(), b.items(), budget));
    if (place == a.items().size() || place == b.items().size())
      return a.items().size() < b.items().size();
    return less(a.items()[place], b.items()[place], budget);
  }
  return invalid_input(cat("'", a.type_name(), "' and '", b.type_name(), "' have no order"));
}

Result<bool> contains(const Value& container, const Value& item, Budget& budget) {
  if (container.is_text()) return contains_text(container.text(), item, budget);
  if (container.is_dict()) {
    if (!is_hashable(item)) return unhashable(item);
    return container.dict().find(item) != nullptr;
  }
  if (const auto* view = container.as<DictView>(); view != nullptr && view->has_keys()) {
    if (!is_hashable(item)) return unhashable(item);
    return view->dict().find(item) != nullptr;
  }
  if (!is_iterable(container))
    return invalid_input(cat("argument of type '", container.type_name(), "' is not iterable"));
  std::vector<Value> storage;
  if (!container.is_sequence()) {
    BRAID_ASSIGN(storage, iterate(container, budget));
  }
  for (const Value& candidate : container.is_sequence() ? container.items() : storage) {
    BRAID_ASSIGN(const bool same, equal(candidate, item, budget));
    if (same) return true;
  }
  return false;
}

Status check_defined(const Value& value) {
  return value.is_undefined() ? invalid_input(value.why()) : ok_status();
}

}  // namespace braid::jinja
