#include "config/allowed.h"

#include <cmath>

#include "base/text.h"

namespace braid::inline config {
namespace {

std::vector<std::string> choices_of(const Allowed& allowed) {
  std::vector<std::string> out;
  for (const std::string& choice : split(allowed.choices, '|')) out.emplace_back(trim(choice));
  return out;
}

// Whole numbers in digits, as people write them, as long as a double counts them exactly.
std::string number_text(double value) {
  constexpr double kExact = 9'007'199'254'740'992;
  if (std::abs(value) < kExact && value == std::floor(value))
    return cat(static_cast<int64_t>(value));
  return format_double(value);
}

bool has_choices(const Allowed& allowed) { return allowed.choices[0] != '\0'; }

}  // namespace

std::string allowed_text(const Allowed& allowed) {
  if (has_choices(allowed)) return allowed.choices;
  const bool low = allowed.low > -kMostNumber;
  const bool high = std::isfinite(allowed.high) && !allowed.high_is_guard;
  const std::string least = number_text(allowed.low), most = number_text(allowed.high);
  if (low && high)
    return cat(allowed.low_excluded ? "above " : "", least,
               allowed.high_excluded ? " to below " : " to ", most);
  if (low)
    return cat(allowed.zero_too ? "0 or " : "", allowed.low_excluded ? "above " : "at least ",
               least);
  return "";
}

Status check_allowed(const Allowed& allowed, const std::string& key, double value) {
  const bool low = allowed.low_excluded ? value > allowed.low : value >= allowed.low;
  const bool high = allowed.high_excluded ? value < allowed.high : value <= allowed.high;
  if ((low && high) || (allowed.zero_too && value == 0)) return ok_status();
  if (low && allowed.high_is_guard)
    return invalid_input(
        cat(key, " must be at most ", number_text(allowed.high), ", not ", number_text(value)));
  return invalid_input(cat(key, " must be ", allowed_text(allowed), ", not ", number_text(value)));
}

Status check_allowed(const Allowed& allowed, const std::string& key, const std::string& value) {
  if (!has_choices(allowed)) return ok_status();
  const std::vector<std::string> choices = choices_of(allowed);
  for (const std::string& choice : choices)
    if (value == choice) return ok_status();
  return invalid_input(
      cat(key, " must be ", allowed.choices, ", not '", value, "'", did_you_mean(value, choices)));
}

}  // namespace braid::inline config
