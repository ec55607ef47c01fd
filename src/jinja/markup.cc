#include "jinja/markup.h"

#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {

Result<Value> escape(const Value& value, Budget& budget) {
  if (value.is_safe()) return value;
  BRAID_ASSIGN(const std::string text, to_text(value, budget));
  BRAID_TRY(budget.spend_text(6 * text.size()));
  return Value::safe(escaped(text));
}

Value marked(const Value& value) {
  if (value.is_text()) return Value::safe(value.text());
  if (!value.is_sequence()) return value;
  std::vector<Value> out;
  for (const Value& item : value.items()) out.push_back(marked(item));
  return value.is_tuple() ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

Value marked_like(const Value& origin, Value value) {
  return origin.is_safe() ? marked(value) : std::move(value);
}

Status escape_arguments(const std::string& method, Arguments* arguments, Budget& budget) {
  auto& given = arguments->positional;
  if (method == "join" && given.size() == 2) {
    BRAID_ASSIGN(std::vector<Value> items, iterate(given[1], budget));
    for (Value& item : items) {
      BRAID_ASSIGN(item, escape(item, budget));
    }
    given[1] = Value::list(std::move(items));
    return ok_status();
  }
  const bool pads = method == "ljust" || method == "rjust" || method == "center";
  if ((pads || method == "replace") && given.size() > 2) {
    BRAID_ASSIGN(given[2], escape(given[2], budget));
  }
  return ok_status();
}

}  // namespace braid::jinja
