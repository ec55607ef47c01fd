#include "models/config_reader.h"

namespace braid::inline models {

bool ConfigReader::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

void ConfigReader::fail(std::string message) {
  if (status_.ok()) status_ = invalid_input(std::move(message));
}

void ConfigReader::refuse(std::string message) {
  if (refusal_.ok()) refusal_ = invalid_input(std::move(message));
}

int64_t ConfigReader::whole(Spellings keys, int64_t least, std::optional<int64_t> fallback) {
  for (const char* key : keys) {
    if (!has(key)) continue;
    const Json& value = object_.at(key);
    if (value.is_number_integer() && value >= least && value <= kMaxSize)
      return value.get<int64_t>();
    fail(cat("'", key, "' must be a whole number from ", least, " to ", kMaxSize, ", is ",
             value.dump()));
    return 1;
  }
  if (!fallback) fail(cat("missing key '", *keys.begin(), "'"));
  return fallback.value_or(1);
}

double ConfigReader::number(const char* key) {
  if (!has(key)) {
    fail(cat("missing key '", key, "'"));
    return 1;
  }
  const Json& value = object_.at(key);
  if (!value.is_number()) {
    fail(cat("key '", key, "' must be a number, not ", value.dump()));
    return 1;
  }
  return value.get<double>();
}

double ConfigReader::number_or(const char* key, double fallback) {
  return has(key) ? number(key) : fallback;
}

bool ConfigReader::flag_or(const char* key, bool fallback) {
  if (!has(key)) return fallback;
  const Json& value = object_.at(key);
  if (value.is_boolean()) return value.get<bool>();
  fail(cat("key '", key, "' must be true or false, not ", value.dump()));
  return fallback;
}

std::string ConfigReader::text_or(const char* key, const std::string& fallback) {
  if (!has(key)) return fallback;
  const Json& value = object_.at(key);
  if (value.is_string()) return value.get<std::string>();
  fail(cat("key '", key, "' must be a text, not ", value.dump()));
  return fallback;
}

std::vector<double> ConfigReader::positive_numbers(const char* key) {
  const Json list = has(key) ? object_.at(key) : Json();
  std::vector<double> out;
  for (const Json& number : list.is_array() ? list : Json::array()) {
    const double value = number.is_number() ? number.get<double>() : 0;
    if (value > 0) out.push_back(value);
  }
  if (!list.is_array() || out.size() != list.size())
    fail(cat("key '", key, "' must be a list of positive numbers"));
  return out;
}

std::vector<int64_t> ConfigReader::ids(const char* key) {
  if (!has(key)) return {};
  const Json& value = object_.at(key);
  const Json list = value.is_array() ? value : Json::array({value});
  std::vector<int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer()) {
      fail(cat("key '", key, "' must be a token id or a list of them, not ", value.dump()));
      return {};
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

void ConfigReader::require_flag(const char* key, bool only_value) {
  if (flag_or(key, only_value) == only_value) return;
  fail(cat("key '", key, "' is ", only_value ? "false" : "true", ", which is not supported"));
}

}  // namespace braid::inline models
