// Integer arithmetic of the shell. Internal to plan/. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace braid::foreign {

// The value of "(a + 2) * b" with + - * / % and parentheses; names by the look-up. Nothing where a
// name is unknown or no whole number, for division by zero, overflow and anything else.
std::optional<int64_t> shell_arithmetic(
    std::string_view text,
    const std::function<std::optional<std::string>(const std::string&)>& look_up);

}  // namespace braid::foreign
