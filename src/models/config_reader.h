// Typed reads from a config.json object. The first failure sticks and later reads return neutral
// values, so a family reads all its keys in a row and checks once. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace braid::inline models {

class ConfigReader {
 public:
  // Spellings of one key, of which the first that is there counts; where none is and one must be,
  // the error names the first.
  using Spellings = std::initializer_list<const char*>;

  // `object` must outlive the reader and be a JSON object.
  explicit ConfigReader(const Json& object) : object_(object) {}

  // True when the key is there and not null.
  bool has(const char* key) const;

  // An integer from 1 to kMaxSize; `size` requires the key.
  int64_t size(Spellings keys) { return whole(keys, 1, std::nullopt); }
  int64_t size(const char* key) { return size(Spellings{key}); }
  int64_t size_or(Spellings keys, int64_t fallback) { return whole(keys, 1, fallback); }
  int64_t size_or(const char* key, int64_t fallback) { return size_or(Spellings{key}, fallback); }
  // The same of what may be 0.
  int64_t count_or(Spellings keys, int64_t fallback) { return whole(keys, 0, fallback); }
  int64_t count_or(const char* key, int64_t fallback) { return count_or(Spellings{key}, fallback); }
  double number(const char* key);
  double number_or(const char* key, double fallback);
  bool flag_or(const char* key, bool fallback);
  std::string text_or(const char* key, const std::string& fallback);
  // A list of positive numbers; the key is required.
  std::vector<double> positive_numbers(const char* key);
  // Token ids: null, an integer or a list of integers.
  std::vector<int64_t> ids(const char* key);

  // Fails unless the key is absent, null or has the one value that is supported.
  void require_flag(const char* key, bool only_value);

  void fail(std::string message);
  const Status& status() const { return status_; }
  // What can be priced and not executed; the first one sticks. Beside status().
  void refuse(std::string message);
  const Status& refusal() const { return refusal_; }
  const Json& object() const { return object_; }

  static constexpr int64_t kMaxSize = int64_t{1} << 28;

 private:
  int64_t whole(Spellings keys, int64_t least, std::optional<int64_t> fallback);

  const Json& object_;
  Status status_, refusal_;
};

}  // namespace braid::inline models
