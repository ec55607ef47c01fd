// UTF-8, byte by byte. Functions are pure and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braid::inline base {

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

}  // namespace braid::inline base
