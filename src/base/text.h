// Small text helpers shared by every module: joining, splitting, near-name suggestions,
// human-readable quantities. All functions are pure.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace braid::inline base {

// All arguments written one after another, as by operator<<.
template <typename... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

std::string join(const std::vector<std::string>& parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// What an error says in one line: libtorch writes a stack below the first.
std::string first_line(std::string_view text);
// ASCII letters in lower case, all other bytes as they are.
std::string lowered(std::string_view text);

// Levenshtein distance in bytes.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to name, or "" when none is near enough to be a likely misspelling.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// " (did you mean X?)" or "".
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// "12.3 GiB", "4.0 KiB", "17 B".
std::string format_bytes(double bytes);
// "1.25 s", "3.1 ms", "42 us".
std::string format_seconds(double seconds);
// A number with so many digits after the point.
std::string fixed_text(double value, int digits);
// Shortest decimal form that reads back as the same double.
std::string format_double(double value);

// Strict conversions: the whole text must be the number (decimal, no leading zeros or blanks for
// integers).
bool parse_int(std::string_view text, int64_t* out);
bool parse_double(std::string_view text, double* out);
bool parse_bool(std::string_view text, bool* out);

}  // namespace braid::inline base
