// Typed reads from a config.json object. The first failure sticks and later reads return neutral
// values, so a family reads all its keys in a row and checks once. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline dataflow {

class ConfigReader {
 public:
  // `object` must outlive the reader and be a JSON object.
  explicit ConfigReader(const Json& object) : object_(object) {}

  // True when the key is there and not null.
  bool has(const char* key) const;

  // A positive integer of at most kMaxSize; `size` requires the key.
  int64_t size(const char* key);
  int64_t size_or(const char* key, int64_t fallback);
  double number(const char* key);
  double number_or(const char* key, double fallback);
  bool flag_or(const char* key, bool fallback);
  std::string text_or(const char* key, const std::string& fallback);
  // Token ids: null, an integer or a list of integers.
  std::vector<int64_t> ids(const char* key);

  // Fails unless the key is absent, null or has the one value that is supported.
  void require_flag(const char* key, bool only_value);

  void fail(std::string message);
  const Status& status() const { return status_; }
  const Json& object() const { return object_; }

  static constexpr int64_t kMaxSize = int64_t{1} << 26;

 private:
  const Json& object_;
  Status status_;
};

}  // namespace braid::inline dataflow
