#include "jinja/access.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/arguments.h"
#include "jinja/compare.h"
#include "jinja/markup.h"
#include "jinja/methods.h"
#include "jinja/objects.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

// Methods that would change a list or a dictionary.
bool changes_value(const Value& object, const std::string& name) {
  static const std::set<std::string> kOfLists = {"append", "clear", "pop",    "reverse",
                                                 "insert", "sort",  "extend", "remove"};
  static const std::set<std::string> kOfDicts = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.is_dict()) return kOfDicts.count(name) != 0;
  return object.is_sequence() && !object.is_tuple() && kOfLists.count(name) != 0;
}

Value unsafe(const Value& object, const std::string& name) {
  return Value::undefined(
      cat("access to attribute '", name, "' of '", object.type_name(), "' object is unsafe"));
}

// Python writes a key as its repr; a long one is of no use in a message.
std::string key_text(const Value& key) {
  constexpr size_t kMost = 60;
  if (key.is_text()) return jinja::quoted(key.text().size() > kMost ? key.type_name() : key.text());
  return key.is_int() ? std::to_string(key.integer()) : cat("of type ", key.type_name());
}

Value missing(const Value& object, const Value& key) {
  return Value::undefined(cat("'", object.type_name(), " object' has no ",
                              key.is_text() ? "attribute " : "element ", key_text(key)));
}

// obj[key], or nothing where Python raises TypeError or LookupError.
std::optional<Value> find_item(const Value& object, const Value& key) {
  if (object.is_dict()) {
    const Value* found = is_hashable(key) ? object.dict().find(key) : nullptr;
    return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
  }
  if (object.is_object()) return object.object().item(key);
  if (!key.is_integral() || (!object.is_sequence() && !object.is_text())) return std::nullopt;
  const auto length = static_cast<int64_t>(*length_of(object));
  const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return std::nullopt;
  if (object.is_sequence()) return object.items()[static_cast<size_t>(index)];
  const size_t begin = byte_offset(object.text(), static_cast<size_t>(index));
  size_t end = begin;
  next_code_point(object.text(), &end);
  return marked_like(object, Value(object.text().substr(begin, end - begin)));
}

// The places that begin:end:step visits in something of this length.
struct Steps {
  int64_t begin = 0, end = 0, step = 1, count = 0;
};

Result<int64_t> slice_number(const Value& value) {
  BRAID_TRY(check_defined(value));
  if (value.is_integral()) return value.integer();
  return invalid_input(cat("slice indices must be integers or None, not ", value.type_name()));
}

Result<int64_t> slice_end(const Value& value, int64_t fallback, int64_t low, int64_t length) {
  if (value.is_none()) return fallback;
  BRAID_ASSIGN(int64_t index, slice_number(value));
  if (index < 0) index += length;
  return std::clamp(index, low, length + low);
}

Result<Steps> slice_steps(const Value& begin, const Value& end, const Value& step, int64_t length) {
  Steps out;
  if (!step.is_none()) {
    BRAID_ASSIGN(out.step, slice_number(step));
  }
  if (out.step == 0) return invalid_input("slice step cannot be zero");
  const bool back = out.step < 0;
  const int64_t low = back ? -1 : 0;
  BRAID_ASSIGN(out.begin, slice_end(begin, back ? length - 1 : 0, low, length));
  BRAID_ASSIGN(out.end, slice_end(end, back ? -1 : length, low, length));
  const int64_t span = back ? out.begin - out.end : out.end - out.begin;
  if (span <= 0) return out;
  const uint64_t size =
      back ? 0 - static_cast<uint64_t>(out.step) : static_cast<uint64_t>(out.step);
  out.count = static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / size) + 1;
  return out;
}

std::string slice_text(const std::string& text, const Steps& steps) {
  const auto begin = static_cast<size_t>(steps.begin);
  if (steps.count == 0) return "";
  if (steps.step == 1) {
    const size_t first = byte_offset(text, begin);
    const std::string_view rest = std::string_view(text).substr(first);
    return std::string(rest.substr(0, byte_offset(rest, static_cast<size_t>(steps.count))));
  }
  const std::u32string points = to_code_points(text);
  std::u32string out;
  for (int64_t i = 0; i < steps.count; ++i)
    out.push_back(points[static_cast<size_t>(steps.begin + i * steps.step)]);
  return to_utf8(out);
}

}  // namespace

std::optional<Value> find_attribute(const Value& object, const std::string& name) {
  if (object.is_object()) return object.object().attribute(name);
  if (changes_value(object, name)) return unsafe(object, name);
  return find_method(object, name);
}

Result<Value> get_attribute(const Value& object, const std::string& name) {
  BRAID_TRY(check_defined(object));
  if (std::optional<Value> found = find_attribute(object, name)) return *found;
  const Value key(name);
  if (std::optional<Value> found = find_item(object, key)) return *found;
  return missing(object, key);
}

Result<Value> get_item(const Value& object, const Value& key) {
  BRAID_TRY(check_defined(object));
  if (std::optional<Value> found = find_item(object, key)) return *found;
  if (key.is_text())
    if (std::optional<Value> found = find_attribute(object, key.text())) return *found;
  return missing(object, key);
}

Result<Value> get_slice(const Value& object, const Value& begin, const Value& end,
                        const Value& step) {
  BRAID_TRY(check_defined(object));
  const bool sliceable = object.is_text() || object.is_sequence() ||
                         object.as<Range>() != nullptr || object.as<Group>() != nullptr;
  if (!sliceable) return invalid_input(cat("'", object.type_name(), "' object cannot be sliced"));
  const auto length = static_cast<int64_t>(*length_of(object));
  BRAID_ASSIGN(const Steps steps, slice_steps(begin, end, step, length));
  if (object.is_text()) return marked_like(object, Value(slice_text(object.text(), steps)));
  if (const auto* range = object.as<Range>())
    return range->slice(steps.begin, steps.end, steps.step);
  std::vector<Value> out;
  for (int64_t i = 0; i < steps.count; ++i)
    out.push_back(*find_item(object, Value(steps.begin + i * steps.step)));
  return object.is_tuple() ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

Result<Value> get_path(const Value& object, const Value& path, const Value& fallback) {
  Value current = object;
  const auto step = [&](const Value& key) -> Status {
    BRAID_ASSIGN(current, get_item(current, key));
    if (current.is_undefined() && !fallback.is_none()) current = fallback;
    return ok_status();
  };
  if (path.is_none()) return current;
  if (!path.is_text()) {
    BRAID_TRY(step(path));
    return current;
  }
  for (const std::string& part : split(path.text(), '.')) {
    int64_t index = 0;
    const bool digits = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    BRAID_TRY(step(digits && parse_int(part, &index) ? Value(index) : Value(part)));
  }
  return current;
}

}  // namespace braid::jinja
