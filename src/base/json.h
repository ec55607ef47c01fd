// JSON as a value type (nlohmann), with parse errors as Status and field access that names what is
// missing.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/text.h"

namespace braid::inline base {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Parses one JSON document; duplicate keys, invalid UTF-8 and more than 200 levels of lists and
// objects in each other are errors. `where` names the source
// in the message.
Result<Json> parse_json(std::string_view text, const std::string& where);

// The same with the keys of objects in the order of the text.
Result<OrderedJson> parse_ordered_json(std::string_view text, const std::string& where);

// Every key of the object is one of `known`, or tells people about it without meaning anything:
// note, comment, description, source, version and their like. The error names the nearest key.
Status require_known_keys(const Json& object, const std::vector<std::string>& known);

// object[key] converted to T; an error names the key, the type wanted and the type found.
template <typename T, typename Object>
Result<T> json_field(const Object& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end()) return invalid_input(cat("missing key '", key, "'"));
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    return invalid_input(
        cat("key '", key, "' has a value of type ", found->type_name(), " that does not fit"));
  }
}

// Null where the value is not finite, which JSON cannot say.
inline Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

// As json_field, with a default for an absent or null key (a wrong type stays an error).
template <typename T, typename Object>
Result<T> json_field_or(const Object& object, const std::string& key, T fallback) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  return json_field<T>(object, key);
}

}  // namespace braid::inline base
