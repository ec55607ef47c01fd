// Integer arithmetic of the shell. Internal to plan/. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace braid::inline foreign {

// The value of an expression such as "(a + 2) * b", "n > 1 ? n / 2 : 1" or "i += 1": the operators
// of C but for those on bits, and "**"; names by the look-up, assignments through `assign`. Nothing
// where a name is unknown or no whole number, for division by zero, overflow and anything else.
std::optional<int64_t> shell_arithmetic(
    std::string_view text,
    const std::function<std::optional<std::string>(const std::string&)>& look_up,
    const std::function<void(const std::string&, int64_t)>& assign = {});

}  // namespace braid::inline foreign
