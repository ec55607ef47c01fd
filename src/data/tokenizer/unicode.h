// Unicode facts that the tokenizer needs. The reference tokenizers mix tables of several
// Unicode versions, so what differs from PCRE2's and utf8proc's tables is listed here. Functions
// are pure and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace braid::inline data {

// \w of Unicode regular expressions: Alphabetic, marks, decimal digits, connectors, joiners.
bool is_word_character(char32_t code_point);

// Text in which PCRE2 (Unicode 14) sees the character classes of Unicode 16: code points that
// changed since are replaced by others of the same class and UTF-8 length. Returns text itself when
// nothing changes, otherwise a view of *storage.
std::string_view with_current_classes(std::string_view text, std::string* storage);

// Lower case of one code point; itself where it has none or is not a single code point.
char32_t to_lower(char32_t code_point);

// True for a code point that normalization leaves alone although newer tables change it: the
// reference normalizes by Unicode 12.
bool is_inert_in_normalization(char32_t code_point);

}  // namespace braid::inline data
