// The values that an option takes, declared beside its key in visit(): the reader checks them and
// the documentation prints them. Values; thread-safe.
#pragma once

#include <limits>
#include <string>

#include "base/status.h"

namespace braid::inline config {

// Bounds far above what can be meant, so that products of counts fit and nothing waits for ever.
inline constexpr double kMostCount = 16'777'216;     // samples, tokens of a sequence, ...
inline constexpr double kMostSteps = 1'000'000'000;  // steps, and tokens of a batch
inline constexpr double kMostNumber = 1e30;

struct Allowed {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_excluded = false, high_excluded = false;
  bool zero_too = false;  // 0, below `low`
  bool high_is_guard =
      false;                 // far above what can be meant: not worth a word before it is exceeded
  const char* choices = "";  // "a | b | c"; "" = any text
};

constexpr Allowed at_least(double low) {
  Allowed out;
  out.low = low;
  return out;
}
constexpr Allowed zero_or_at_least(double low) {
  Allowed out = at_least(low);
  out.zero_too = true;
  return out;
}
constexpr Allowed above(double low) {
  Allowed out = at_least(low);
  out.low_excluded = true;
  return out;
}
constexpr Allowed between(double low, double high) {
  Allowed out = at_least(low);
  out.high = high;
  return out;
}
// At least low; more than `most` is a mistake that would hang or overflow.
constexpr Allowed counted(double low, double most) {
  Allowed out = between(low, most);
  out.high_is_guard = true;
  return out;
}
// Above low, up to high.
constexpr Allowed above_to(double low, double high) {
  Allowed out = between(low, high);
  out.low_excluded = true;
  return out;
}
// From low up to, but without, high.
constexpr Allowed from_to_below(double low, double high) {
  Allowed out = between(low, high);
  out.high_excluded = true;
  return out;
}
// Any number that is not beyond all measure.
constexpr Allowed any_number() {
  Allowed out = counted(-kMostNumber, kMostNumber);
  return out;
}
constexpr Allowed positive() {
  Allowed out = counted(0, kMostNumber);
  out.low_excluded = true;
  return out;
}
// 0, or above low.
constexpr Allowed zero_or_above(double low) {
  Allowed out = counted(low, kMostNumber);
  out.low_excluded = true;
  out.zero_too = true;
  return out;
}
constexpr Allowed one_of(const char* choices) {
  Allowed out;
  out.choices = choices;
  return out;
}

// "at least 1", "above 0", "0 to 1", "a | b | c"; "" where every value is allowed.
std::string allowed_text(const Allowed& allowed);

// kInvalidInput where the value is not allowed: "KEY must be at least 1, not 0".
Status check_allowed(const Allowed& allowed, const std::string& key, double value);
Status check_allowed(const Allowed& allowed, const std::string& key, const std::string& value);

}  // namespace braid::inline config
