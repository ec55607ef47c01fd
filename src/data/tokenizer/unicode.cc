#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "data/tokenizer/unicode_tables.h"

namespace braid::inline data {
namespace {

// The first range whose last member is not below code_point, when it holds code_point.
template <typename Range, size_t kSize>
const Range* find_range(const Range (&ranges)[kSize], char32_t code_point) {
  const Range* found =
      std::lower_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](const Range& range, char32_t value) { return range.last < value; });
  return found != std::end(ranges) && found->first <= code_point ? found : nullptr;
}

}  // namespace

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

}  // namespace braid::inline data
