#include "dataflow/config_reader.h"

namespace braid::inline dataflow {

bool ConfigReader::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

void ConfigReader::fail(std::string message) {
  if (status_.ok()) status_ = invalid_input(std::move(message));
}

int64_t ConfigReader::size(const char* key) {
  if (!has(key)) {
    fail(cat("missing key '", key, "'"));
    return 1;
  }
  const Json& value = object_.at(key);
  if (!value.is_number_integer()) {
    fail(cat("key '", key, "' must be an integer, not ", value.dump()));
    return 1;
  }
  const auto number = value.get<int64_t>();
  if (number <= 0 || number > kMaxSize) {
    fail(cat("key '", key, "' is ", value.dump(), "; it must be between 1 and ", kMaxSize));
    return 1;
  }
  return number;
}

int64_t ConfigReader::size_or(const char* key, int64_t fallback) {
  return has(key) ? size(key) : fallback;
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

}  // namespace braid::inline dataflow
