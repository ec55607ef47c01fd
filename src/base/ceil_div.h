// Whole numbers in units of another.
#pragma once

#include <cstdint>

namespace braid::inline base {

// a / b, rounded up. REQUIRES: a >= 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The least multiple of `unit` that is at least `value`. REQUIRES: likewise.
constexpr int64_t round_up(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

}  // namespace braid::inline base
