#include "base/utf8.h"

namespace braid::inline base {
namespace {

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Bounds of the second byte, which exclude overlong forms, surrogates and values above 0x10FFFF.
bool valid_second_byte(uint8_t first, uint8_t second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return is_continuation(second);
  }
}

}  // namespace

int utf8_length(uint8_t first_byte) {
  if (first_byte < 0x80) return 1;
  if (first_byte < 0xC2) return 0;
  if (first_byte < 0xE0) return 2;
  if (first_byte < 0xF0) return 3;
  return first_byte < 0xF5 ? 4 : 0;
}

size_t utf8_step(std::string_view bytes, bool* complete, bool* truncated) {
  const uint8_t first = bytes[0];
  const size_t length = utf8_length(first);
  *complete = length == 1;
  *truncated = false;
  if (length <= 1) return 1;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) {
      *truncated = true;
      return i;
    }
    const uint8_t byte = bytes[i];
    if (!(i == 1 ? valid_second_byte(first, byte) : is_continuation(byte))) return i;
  }
  *complete = true;
  return length;
}

size_t find_invalid_utf8(std::string_view text) {
  size_t position = 0;
  bool complete = false, truncated = false;
  while (position < text.size()) {
    if (static_cast<uint8_t>(text[position]) < 0x80) {
      ++position;
      continue;
    }
    const size_t length = utf8_step(text.substr(position), &complete, &truncated);
    if (!complete) return position;
    position += length;
  }
  return std::string_view::npos;
}

char32_t next_code_point(std::string_view text, size_t* position) {
  const uint8_t first = text[*position];
  const int length = utf8_length(first);
  constexpr uint8_t kFirstByteMask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t code_point = first & kFirstByteMask[length];
  for (int i = 1; i < length; ++i) code_point = code_point << 6 | (text[*position + i] & 0x3F);
  *position += length;
  return code_point;
}

void append_utf8(char32_t c, std::string* out) {
  const auto add = [&](char32_t lead, int bits) {
    out->push_back(static_cast<char>(lead | c >> bits));
    while ((bits -= 6) >= 0) out->push_back(static_cast<char>(0x80 | (c >> bits & 0x3F)));
  };
  if (c < 0x80) return add(0, 0);
  if (c < 0x800) return add(0xC0, 6);
  if (c < 0x10000) return add(0xE0, 12);
  add(0xF0, 18);
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace braid::inline base
