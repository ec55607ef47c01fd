// Texts in quotes. Pure function.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::jinja {

// What a text between quotes stands for: the escapes of Python (\n, \x41, \u00e9, \101 …); an
// unknown one stays as it is written.
Result<std::string> unescaped(std::string_view text);

}  // namespace braid::jinja
