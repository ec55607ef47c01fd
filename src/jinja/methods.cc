#include "jinja/methods.h"

#include <cmath>
#include <cstring>

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/compare.h"

namespace braid::jinja {
namespace {

Result<Value> dict_get(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("get", arguments, {nullptr, nullptr, nullptr}, 2));
  if (!is_hashable(bound.at(1)))
    return invalid_input(cat("unhashable type: '", bound.at(1).type_name(), "'"));
  const Value* found = bound.at(0).dict().find(bound.at(1));
  return found != nullptr ? *found : bound.or_else(2, Value());
}

template <DictView::Part kPart>
Result<Value> dict_view(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the method", arguments, {nullptr}, 1));
  return make_object<DictView>(bound.at(0).dict_ptr(), kPart);
}

Result<Value> copy(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("copy", arguments, {nullptr}, 1));
  return bound.at(0);
}

Result<Value> sequence_count(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("count", arguments, {nullptr, nullptr}, 2));
  int64_t count = 0;
  for (const Value& item : bound.at(0).items()) {
    BRAID_ASSIGN(const bool same, equal(item, bound.at(1), budget));
    count += same ? 1 : 0;
  }
  return Value(count);
}

Result<Value> sequence_index(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("index", arguments, {nullptr, nullptr, nullptr, nullptr}, 2));
  const std::vector<Value>& items = bound.at(0).items();
  const auto length = static_cast<int64_t>(items.size());
  BRAID_ASSIGN(int64_t begin, bound.integer(2, 0));
  BRAID_ASSIGN(int64_t end, bound.integer(3, length));
  if (begin < 0) begin = std::max<int64_t>(0, begin + length);
  if (end < 0) end += length;
  for (int64_t i = begin; i < std::min(end, length); ++i) {
    BRAID_ASSIGN(const bool same, equal(items[static_cast<size_t>(i)], bound.at(1), budget));
    if (same) return Value(i);
  }
  return invalid_input("the value is not in the list");
}

Result<Value> is_integer(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("is_integer", arguments, {nullptr}, 1));
  const double value = bound.at(0).number();
  return Value(std::isfinite(value) && value == std::floor(value));
}

Result<Value> bit_length(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("bit_length", arguments, {nullptr}, 1));
  const int64_t value = bound.at(0).integer();
  uint64_t rest = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  int64_t bits = 0;
  for (; rest != 0; rest >>= 1) ++bits;
  return Value(bits);
}

constexpr MethodEntry kDictMethods[] = {
    {"copy", copy},
    {"get", dict_get},
    {"items", dict_view<DictView::Part::kItems>},
    {"keys", dict_view<DictView::Part::kKeys>},
    {"values", dict_view<DictView::Part::kValues>},
};
constexpr MethodEntry kListMethods[] = {
    {"copy", copy}, {"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kIntMethods[] = {{"bit_length", bit_length}};
constexpr MethodEntry kFloatMethods[] = {{"is_integer", is_integer}};

template <size_t kSize>
const MethodEntry* find_entry(const MethodEntry (&entries)[kSize], const std::string& name) {
  for (const MethodEntry& entry : entries)
    if (name == entry.name) return &entry;
  return nullptr;
}

const MethodEntry* find_method_entry(const Value& value, const std::string& name) {
  switch (value.kind()) {
    case Value::Kind::kText:
      return find_text_method(name);
    case Value::Kind::kDict:
      return find_entry(kDictMethods, name);
    case Value::Kind::kList:
      return value.is_tuple() ? find_entry(kTupleMethods, name) : find_entry(kListMethods, name);
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return find_entry(kIntMethods, name);
    case Value::Kind::kFloat:
      return find_entry(kFloatMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace

std::optional<Value> find_method(const Value& value, const std::string& name) {
  const MethodEntry* entry = find_method_entry(value, name);
  if (entry == nullptr) return std::nullopt;
  return make_object<Method>(entry->name, value, entry->body);
}

}  // namespace braid::jinja
