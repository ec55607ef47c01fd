#include "reward/rules.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/text.h"

namespace braid::inline reward {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_digits(std::string_view text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// The end of a thousands group that starts at `at` (",123", no further digit), or `at` itself.
size_t skip_group(std::string_view text, size_t at) {
  if (at >= text.size() || text[at] != ',') return at;
  return skip_digits(text, at + 1) == at + 4 ? at + 4 : at;
}

// One past the number whose first digit (or decimal point) is at `at`.
size_t number_end(std::string_view text, size_t at) {
  size_t end = skip_digits(text, at);
  if (end > at && end - at <= 3)
    for (size_t next = skip_group(text, end); next != end; next = skip_group(text, end)) end = next;
  if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1]))
    end = skip_digits(text, end + 1);
  return end;
}

bool number_starts(std::string_view text, size_t at) {
  return is_digit(text[at]) || (text[at] == '.' && at + 1 < text.size() && is_digit(text[at + 1]));
}

// A minus sign belongs to the number unless it stands between two operands, as in "10-5".
bool is_negative(std::string_view text, size_t at) {
  if (at > 0 && text[at - 1] == '$') --at;
  if (at == 0 || text[at - 1] != '-') return false;
  if (at == 1) return true;
  const auto before = static_cast<unsigned char>(text[at - 2]);
  return !std::isalnum(before) && before != ')';
}

double number_value(std::string_view digits, bool negative) {
  std::string plain;
  std::copy_if(digits.begin(), digits.end(), std::back_inserter(plain),
               [](char c) { return c != ','; });
  const double value = std::strtod(plain.c_str(), nullptr);
  return negative ? -value : value;
}

// The first or the last number of a text.
std::optional<double> find_number(std::string_view text, bool first) {
  std::optional<double> found;
  for (size_t at = 0; at < text.size();) {
    if (!number_starts(text, at)) {
      ++at;
      continue;
    }
    const size_t end = number_end(text, at);
    found = number_value(text.substr(at, end - at), is_negative(text, at));
    if (first) return found;
    at = end;
  }
  return found;
}

// Bytes of the valid UTF-8 sequence at `at`, its code point in *value; 0 if there is none.
size_t decode_at(std::string_view text, size_t at, char32_t* value) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t size = lead < 0x80         ? 1
                      : (lead >> 5) == 6  ? 2
                      : (lead >> 4) == 14 ? 3
                      : (lead >> 3) == 30 ? 4
                                          : 0;
  if (size == 0 || at + size > text.size()) return 0;
  *value = size == 1 ? lead : lead & (0x7Fu >> size);
  for (size_t i = 1; i < size; ++i) {
    const auto next = static_cast<unsigned char>(text[at + i]);
    if ((next & 0xC0) != 0x80) return 0;
    *value = (*value << 6) | (next & 0x3F);
  }
  return size;
}

using Bits = std::vector<uint64_t>;

// v = (v + (v & match)) | (v & ~match), the addition carried over all words.
void lcs_row(Bits& v, const Bits& match) {
  uint64_t carry = 0;
  for (size_t word = 0; word < v.size(); ++word) {
    const uint64_t old = v[word];
    const uint64_t both = old & match[word];
    const uint64_t partial = old + both;
    const uint64_t sum = partial + carry;
    carry = static_cast<uint64_t>(partial < old) | static_cast<uint64_t>(sum < partial);
    v[word] = sum | (old & ~match[word]);
  }
}

size_t lcs_length(const std::u32string& a, const std::u32string& b) {
  const size_t words = (a.size() + 63) / 64;
  std::unordered_map<char32_t, Bits> positions;
  for (size_t i = 0; i < a.size(); ++i) {
    Bits& bits = positions.try_emplace(a[i], words, 0).first->second;
    bits[i / 64] |= uint64_t{1} << (i % 64);
  }
  Bits v(words, ~uint64_t{0});
  for (const char32_t c : b)
    if (const auto found = positions.find(c); found != positions.end()) lcs_row(v, found->second);
  size_t length = 0;
  for (size_t i = 0; i < a.size(); ++i) length += ((v[i / 64] >> (i % 64)) & 1) == 0;
  return length;
}

}  // namespace

std::optional<double> numeric_answer(std::string_view text) {
  constexpr std::string_view kMark = "####";
  const size_t mark = text.rfind(kMark);
  if (mark == std::string_view::npos) return find_number(text, /*first=*/false);
  return find_number(text.substr(mark + kMark.size()), /*first=*/true);
}

double lcs_ratio(std::string_view a, std::string_view b) {
  const std::u32string left = code_points(a), right = code_points(b);
  if (left.empty() && right.empty()) return 1;
  return 2.0 * static_cast<double>(lcs_length(left, right)) /
         static_cast<double>(left.size() + right.size());
}

double digit_share(std::string_view text) {
  const std::u32string points = code_points(text);
  if (points.empty()) return 0;
  const auto digits = std::count_if(points.begin(), points.end(),
                                    [](char32_t c) { return c >= U'0' && c <= U'9'; });
  return static_cast<double>(digits) / static_cast<double>(points.size());
}

double length_score(double length, double target) {
  return std::max(0.0, 1 - std::abs(length - target) / target);
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  for (size_t at = 0; at < text.size();) {
    char32_t value = 0;
    const size_t size = decode_at(text, at, &value);
    points.push_back(size > 0 ? value : static_cast<unsigned char>(text[at]));
    at += std::max<size_t>(size, 1);
  }
  return points;
}

}  // namespace braid::inline reward
