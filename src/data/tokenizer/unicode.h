// UTF-8 and Unicode facts that the tokenizer needs. The reference tokenizers mix tables of several
// Unicode versions, so what differs from PCRE2's and utf8proc's tables is listed here. Functions
// are pure and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

// Byte offset of the first byte that is not well-formed UTF-8 (surrogates and overlong forms are
// not), or npos.
size_t find_invalid_utf8(std::string_view text);

// The code point at *position, which moves behind it. REQUIRES well-formed UTF-8.
char32_t next_code_point(std::string_view text, size_t* position);

void append_utf8(char32_t code_point, std::string* out);

// Bytes of the UTF-8 character that starts with this byte, 0 for a byte that starts none.
int utf8_length(uint8_t first_byte);

// Length of the longest prefix of bytes (at least 1) that is one character or a broken beginning of
// one; *complete says which, *truncated that the bytes end before the character does.
size_t utf8_step(std::string_view bytes, bool* complete, bool* truncated);

// Unicode property White_Space.
bool is_white_space(char32_t code_point);

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

}  // namespace braid
