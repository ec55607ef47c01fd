#include "jinja/builtins.h"

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/compare.h"
#include "jinja/print.h"

namespace braid::jinja {
namespace {

Result<Value> range_function(Budget& /*budget*/, Arguments arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("range", arguments, {nullptr, nullptr, nullptr}, 1));
  BRAID_ASSIGN(const int64_t first, bound.integer(0, 0));
  if (!bound.has(1)) return Range::make(0, first, 1);
  BRAID_ASSIGN(const int64_t end, bound.integer(1, 0));
  BRAID_ASSIGN(const int64_t step, bound.integer(2, 1));
  return Range::make(first, end, step);
}

// dict(mapping or pairs, name=value …).
Result<std::shared_ptr<Dict>> make_dict(Budget& budget, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return invalid_input("dict expected at most 1 argument");
  const auto out = std::make_shared<Dict>();
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    std::vector<Value> pairs;
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().items()) out->set(key, value);
    } else {
      BRAID_TRY(check_defined(source.is_undefined() ? Value() : source));
      BRAID_ASSIGN(pairs, iterate(source, budget));
    }
    for (const Value& pair : pairs) {
      BRAID_ASSIGN(const std::vector<Value> parts, iterate(pair, budget));
      if (parts.size() != 2) return invalid_input("dict wants pairs of a key and a value");
      if (!is_hashable(parts[0]))
        return invalid_input(cat("unhashable type: '", parts[0].type_name(), "'"));
      out->set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) out->set(Value(name), value);
  BRAID_TRY(budget.spend(out->size()));
  return out;
}

Result<Value> dict_function(Budget& budget, Arguments arguments) {
  BRAID_ASSIGN(const std::shared_ptr<Dict> dict, make_dict(budget, arguments));
  return Value(std::shared_ptr<const Dict>(dict));
}

Result<Value> namespace_function(Budget& budget, Arguments arguments) {
  BRAID_ASSIGN(const std::shared_ptr<Dict> dict, make_dict(budget, arguments));
  const auto out = std::make_shared<Namespace>();
  for (const auto& [name, value] : dict->items()) {
    if (!name.is_text()) continue;  // no attribute can ask for it
    BRAID_TRY(Namespace::check_name(name.text()));
    out->set(name.text(), value);
  }
  return Value(std::shared_ptr<Object>(out));
}

Result<Value> cycler_function(Budget& /*budget*/, Arguments arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    return invalid_input("cycler wants at least one item");
  return make_object<Cycler>(std::move(arguments.positional));
}

Result<Value> joiner_function(Budget& budget, Arguments arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("joiner", arguments, {"sep"}, 0));
  BRAID_ASSIGN(std::string separator, to_text(bound.or_else(0, Value(", ")), budget));
  return make_object<Joiner>(std::move(separator));
}

Result<Value> raise_function(Budget& budget, Arguments arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("raise_exception", arguments, {"message"}, 1));
  BRAID_ASSIGN(const std::string message, to_text(bound.at(0), budget));
  return invalid_input(cat("the template refuses the conversation: ", message));
}

Result<Value> lipsum_function(Budget& /*budget*/, Arguments /*arguments*/) {
  return invalid_input("lipsum() writes random text; a chat template must not");
}

Value strftime_now(const TimeWriter& now) {
  const auto body = [now](Budget& budget, Arguments arguments) -> Result<Value> {
    BRAID_ASSIGN(const Bound bound, Bound::bind("strftime_now", arguments, {"format"}, 1));
    BRAID_ASSIGN(const std::string format, bound.text(0));
    constexpr size_t kMost = 256;
    if (format.size() > kMost) return invalid_input("the format of a time is too long");
    if (!now) return invalid_input("the time is not known here");
    BRAID_TRY(budget.spend(1));
    return Value(now(format));
  };
  return make_object<Function>("strftime_now", body);
}

Value function(const char* name, Result<Value> (*body)(Budget&, Arguments)) {
  return make_object<Function>(name, body);
}

Result<Value> fromkeys(Budget& budget, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound,
               Bound::bind("fromkeys", arguments, {nullptr, nullptr, nullptr}, 2));
  BRAID_ASSIGN(const std::vector<Value> keys, iterate(bound.at(1), budget));
  const auto out = std::make_shared<Dict>();
  for (const Value& key : keys) {
    if (!is_hashable(key)) return invalid_input(cat("unhashable type: '", key.type_name(), "'"));
    out->set(key, bound.or_else(2, Value()));
  }
  return Value(std::shared_ptr<const Dict>(out));
}

}  // namespace

DictFunction::DictFunction() : Function("dict", dict_function) {}

std::optional<Value> DictFunction::attribute(const std::string& name) {
  if (name != "fromkeys") return std::nullopt;
  return make_object<Method>("fromkeys", Value(shared_from_this()), &fromkeys);
}

Builtin find_filter(const std::string& name) {
  if (const Builtin found = find_text_filter(name)) return found;
  if (const Builtin found = find_sequence_filter(name)) return found;
  if (const Builtin found = find_selection_filter(name)) return found;
  return find_number_filter(name);
}

std::optional<Value> find_global(const std::string& name, const TimeWriter& now) {
  if (name == "range") return function("range", range_function);
  if (name == "dict") return make_object<DictFunction>();
  if (name == "namespace") return function("namespace", namespace_function);
  if (name == "cycler") return function("cycler", cycler_function);
  if (name == "joiner") return function("joiner", joiner_function);
  if (name == "raise_exception") return function("raise_exception", raise_function);
  if (name == "strftime_now") return strftime_now(now);
  if (name == "lipsum") return function("lipsum", lipsum_function);
  return std::nullopt;
}

Result<bool> passes(Builtin test, Budget& budget, Arguments arguments) {
  BRAID_ASSIGN(const Value value, test(budget, arguments));
  return value.truth();
}

}  // namespace braid::jinja
