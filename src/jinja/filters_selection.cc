// Filters that look at every item of a sequence by itself, and those that look at one value.
#include "base/text.h"
#include "jinja/access.h"
#include "jinja/arguments.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"

namespace braid::jinja {
namespace {

Result<Value> default_filter(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("default", arguments, {"value", "default_value", "boolean"}, 1));
  const Value& value = bound.at(0);
  const bool replaces = value.is_undefined() || (bound.truth(2, false) && !value.truth());
  return replaces ? bound.or_else(1, Value("")) : value;
}

Result<Value> attr_filter(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("attr", arguments, {"obj", "name"}, 2));
  BRAID_ASSIGN(const std::string name, bound.text(1));
  BRAID_TRY(check_defined(bound.at(0)));
  if (const std::optional<Value> found = find_attribute(bound.at(0), name)) return *found;
  return Value::undefined(
      cat("'", bound.at(0).type_name(), " object' has no attribute '", name, "'"));
}

// A generator of what `make` gives for the items; an error ends it.
template <typename Make>
Result<Value> generate(const Value& value, Budget& budget, Make make) {
  std::vector<Value> out;
  if (!value.truth()) return make_object<Generator>(std::move(out));
  BRAID_ASSIGN(const std::vector<Value> items, iterate(value, budget));
  for (const Value& item : items) {
    const Status made = make(item, &out);
    if (!made.ok()) return make_object<Generator>(std::move(out), made);
  }
  return make_object<Generator>(std::move(out));
}

Status only_attribute(const Arguments& arguments) {
  for (const auto& [name, value] : arguments.named)
    if (name != "attribute" && name != "default")
      return invalid_input(cat("unexpected keyword argument '", name, "'"));
  return ok_status();
}

const Value* named(const Arguments& arguments, const char* wanted) {
  for (const auto& [name, value] : arguments.named)
    if (name == wanted) return &value;
  return nullptr;
}

Result<Value> map_filter(Budget& budget, Arguments& arguments) {
  const Value subject = arguments.positional[0];
  if (const Value* attribute = named(arguments, "attribute");
      arguments.positional.size() == 1 && attribute != nullptr) {
    BRAID_TRY(only_attribute(arguments));
    const Value* fallback = named(arguments, "default");
    return generate(subject, budget, [&](const Value& item, std::vector<Value>* out) -> Status {
      BRAID_ASSIGN(Value value,
                   get_path(item, *attribute, fallback != nullptr ? *fallback : Value()));
      out->push_back(std::move(value));
      return ok_status();
    });
  }
  if (arguments.positional.size() < 2 || !arguments.positional[1].is_text())
    return invalid_input("map requires the name of a filter, or attribute=…");
  const std::string& name = arguments.positional[1].text();
  const Builtin filter = find_filter(name);
  if (filter == nullptr) return invalid_input(cat("there is no filter '", name, "'"));
  return generate(subject, budget, [&](const Value& item, std::vector<Value>* out) -> Status {
    Arguments inner = arguments;
    inner.positional.erase(inner.positional.begin());
    inner.positional[0] = item;
    BRAID_ASSIGN(Value value, filter(budget, inner));
    out->push_back(std::move(value));
    return ok_status();
  });
}

// select, reject, selectattr and rejectattr.
template <bool kWanted, bool kByAttribute>
Result<Value> select_filter(Budget& budget, Arguments& arguments) {
  constexpr size_t kTest = kByAttribute ? 2 : 1;  // place of the test's name
  if (arguments.positional.size() < kTest)
    return invalid_input("the name of an attribute is missing");
  Builtin test = nullptr;
  if (arguments.positional.size() > kTest) {
    const Value& name = arguments.positional[kTest];
    test = name.is_text() ? find_test(name.text()) : nullptr;
    if (test == nullptr)
      return invalid_input(cat("there is no test '", name.is_text() ? name.text() : "", "'"));
  }
  const Value subject = arguments.positional[0];
  return generate(subject, budget, [&](const Value& item, std::vector<Value>* out) -> Status {
    Value value = item;
    if (kByAttribute) {
      BRAID_ASSIGN(value, get_path(item, arguments.positional[1], Value()));
    }
    bool holds = value.truth();
    if (test != nullptr) {
      Arguments inner;
      inner.positional = {value};
      inner.positional.insert(inner.positional.end(), arguments.positional.begin() + kTest + 1,
                              arguments.positional.end());
      inner.named = arguments.named;
      BRAID_ASSIGN(holds, passes(test, budget, std::move(inner)));
    }
    if (holds == kWanted) out->push_back(item);
    return ok_status();
  });
}

Result<Value> random_filter(Budget& /*budget*/, Arguments& /*arguments*/) {
  return invalid_input("the filter random would give another text in every run");
}

}  // namespace

Builtin find_selection_filter(const std::string& name) {
  if (name == "map") return deferred<map_filter>;
  if (name == "select") return deferred<select_filter<true, false>>;
  if (name == "reject") return deferred<select_filter<false, false>>;
  if (name == "selectattr") return deferred<select_filter<true, true>>;
  if (name == "rejectattr") return deferred<select_filter<false, true>>;
  if (name == "default" || name == "d") return default_filter;
  if (name == "attr") return attr_filter;
  if (name == "random") return random_filter;
  return nullptr;
}

}  // namespace braid::jinja
