#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "data/tokenizer/unicode_tables.h"

namespace braid {
namespace {

// The first range whose last member is not below code_point, when it holds code_point.
template <typename Range, size_t kSize>
const Range* find_range(const Range (&ranges)[kSize], char32_t code_point) {
  const Range* found =
      std::lower_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](const Range& range, char32_t value) { return range.last < value; });
  return found != std::end(ranges) && found->first <= code_point ? found : nullptr;
}

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

void append_utf8(char32_t code_point, std::string* out) {
  uint8_t buffer[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out->append(reinterpret_cast<const char*>(buffer), length);
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word_character(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
      (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189))
    return true;  // circled and squared letters are alphabetic symbols
  const ClassChange* change = find_range(kClassChanges, c);
  const auto category =
      utf8proc_category(static_cast<utf8proc_int32_t>(change ? change->stand_in : c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC;
}

std::string_view with_current_classes(std::string_view text, std::string* storage) {
  bool changed = false;
  for (size_t position = 0; position < text.size();) {
    const size_t start = position;
    if (static_cast<uint8_t>(text[start]) < 0xE0) {  // no range begins below U+0800
      ++position;
      continue;
    }
    const ClassChange* change = find_range(kClassChanges, next_code_point(text, &position));
    if (change == nullptr) continue;
    if (!changed) storage->assign(text);
    changed = true;
    std::string stand_in;
    append_utf8(change->stand_in, &stand_in);
    storage->replace(start, position - start, stand_in);
  }
  return changed ? std::string_view(*storage) : text;
}

char32_t to_lower(char32_t code_point) {
  if (const CaseRange* capital = find_range(kNewCapitals, code_point))
    return code_point + capital->to_lower;
  return utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point));
}

bool is_inert_in_normalization(char32_t code_point) {
  return find_range(kInertInNormalization, code_point) != nullptr;
}

}  // namespace braid
