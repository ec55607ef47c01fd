// Regular expressions of tokenizer files, written for Oniguruma (Ruby syntax), in PCRE2's syntax.
// Pure.
#pragma once

#include <string>

#include "base/status.h"

namespace braid::inline data {

// A pattern that PCRE2 (UTF, UCP, multi-line) matches as Oniguruma matches the given one. What has
// no counterpart there, such as nested classes, is an error that names it.
Result<std::string> translate_pattern(const std::string& pattern);

}  // namespace braid::inline data
