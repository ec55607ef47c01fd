// The tests behind `is`.
#include <cmath>

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/methods.h"
#include "jinja/print.h"

namespace braid::jinja {
namespace {

// A test that looks at the value alone.
template <bool (*kTest)(const Value&)>
Result<Value> plain(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {"value"}, 1));
  return Value(kTest(bound.at(0)));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is_bool(); }
bool is_true(const Value& value) { return value.is_bool() && value.truth(); }
bool is_false(const Value& value) { return value.is_bool() && !value.truth(); }
bool is_integer_value(const Value& value) { return value.is_int(); }
bool is_float_value(const Value& value) { return value.is_float(); }
bool is_number_value(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.is_object() && value.object().callable());
}
// Whether a table of filters or tests has a name; as with any key, a list is an error.
template <Builtin (*kFind)(const std::string&)>
Result<Value> is_name(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {"value"}, 1));
  const Value& name = bound.at(0);
  if (!is_hashable(name)) return invalid_input(cat("unhashable type: '", name.type_name(), "'"));
  return Value(name.is_text() && kFind(name.text()) != nullptr);
}
bool is_escaped(const Value& value) { return value.is_safe(); }

// Something with a length and items; by Python's measure an undefined value has both.
bool is_sequence_value(const Value& value) {
  if (value.is_object()) return value.object().subscriptable() && length_of(value).has_value();
  return value.is_text() || value.is_sequence() || value.is_dict() || value.is_undefined();
}

template <const char* kMethod>
Result<Value> case_test(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {"value"}, 1));
  BRAID_ASSIGN(std::string text, to_text(bound.at(0), budget));
  Arguments inner;
  inner.positional = {Value(std::move(text))};
  return find_text_method(kMethod)->body(budget, inner);
}
constexpr char kIsLower[] = "islower";
constexpr char kIsUpper[] = "isupper";

Result<Value> remainder_is(Budget& budget, const Value& value, const Value& divisor,
                           int64_t wanted) {
  BRAID_ASSIGN(const Value rest, apply(Operator::kModulo, value, divisor, budget));
  return Value(rest.is_number() && rest.number() == static_cast<double>(wanted));
}

template <int64_t kRest>
Result<Value> parity(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {"value"}, 1));
  return remainder_is(budget, bound.at(0), Value(2), kRest);
}

Result<Value> divisible_by(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("divisibleby", arguments, {"value", "num"}, 2));
  return remainder_is(budget, bound.at(0), bound.at(1), 0);
}

Result<Value> same_as(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("sameas", arguments, {"value", "other"}, 2));
  return Value(bound.at(0).same_as(bound.at(1)));
}

Result<Value> is_in(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("in", arguments, {"value", "seq"}, 2));
  BRAID_ASSIGN(const bool found, contains(bound.at(1), bound.at(0), budget));
  return Value(found);
}

template <bool kWanted>
Result<Value> is_equal(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {nullptr, nullptr}, 2));
  BRAID_ASSIGN(const bool same, equal(bound.at(0), bound.at(1), budget));
  return Value(same == kWanted);
}

template <bool kSwap, bool kOrEqual>
Result<Value> is_ordered(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("the test", arguments, {nullptr, nullptr}, 2));
  BRAID_ASSIGN(const bool before, less(bound.at(kSwap ? 1 : 0), bound.at(kSwap ? 0 : 1), budget));
  if (before || !kOrEqual) return Value(before);
  BRAID_ASSIGN(const bool same, equal(bound.at(0), bound.at(1), budget));
  return Value(same);
}

struct TestEntry {
  const char* name;
  Builtin body;
};
constexpr TestEntry kTests[] = {
    {"!=", is_equal<false>},
    {"<", is_ordered<false, false>},
    {"<=", is_ordered<false, true>},
    {"==", is_equal<true>},
    {">", is_ordered<true, false>},
    {">=", is_ordered<true, true>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", is_equal<true>},
    {"equalto", is_equal<true>},
    {"escaped", plain<is_escaped>},
    {"even", parity<0>},
    {"false", plain<is_false>},
    {"filter", is_name<find_filter>},
    {"float", plain<is_float_value>},
    {"ge", is_ordered<true, true>},
    {"greaterthan", is_ordered<true, false>},
    {"gt", is_ordered<true, false>},
    {"in", is_in},
    {"integer", plain<is_integer_value>},
    {"iterable", plain<is_iterable>},
    {"le", is_ordered<false, true>},
    {"lessthan", is_ordered<false, false>},
    {"lower", case_test<kIsLower>},
    {"lt", is_ordered<false, false>},
    {"mapping", plain<is_mapping>},
    {"ne", is_equal<false>},
    {"none", plain<is_none>},
    {"number", plain<is_number_value>},
    {"odd", parity<1>},
    {"sameas", same_as},
    {"sequence", plain<is_sequence_value>},
    {"string", plain<is_string>},
    {"test", is_name<find_test>},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", case_test<kIsUpper>},
};

}  // namespace

Builtin find_test(const std::string& name) {
  for (const TestEntry& entry : kTests)
    if (name == entry.name) return entry.body;
  return nullptr;
}

}  // namespace braid::jinja
