// Rule rewards as pure functions of text. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace braid::inline reward {

// The answer that a text gives: the first number after its last "####" (the convention of GSM8K),
// or the last number where there is no such mark. Thousands commas ("1,234") belong to a number.
std::optional<double> numeric_answer(std::string_view text);

// 2·LCS(a, b) / (|a| + |b|) over code points, in [0, 1]; two empty texts give 1. LCS by bit vectors
// (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004).
double lcs_ratio(std::string_view a, std::string_view b);

// Share of the code points that are ASCII digits; 0 for an empty text.
double digit_share(std::string_view text);

// max(0, 1 - |length - target| / target); target > 0.
double length_score(double length, double target);

// UTF-8 as code points; a byte that is not part of valid UTF-8 stands for itself.
std::u32string code_points(std::string_view text);

}  // namespace braid::inline reward
