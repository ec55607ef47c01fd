#include "data/tokenizer/charsmap.h"

#include <utf8proc.h>

#include "base/text.h"
#include "data/tokenizer/bert_unicode.h"
#include "data/tokenizer/unicode.h"

namespace braid::inline data {
namespace {

constexpr char32_t kJoiner = 0x301;  // any that utf8proc knows
constexpr size_t kLongGrapheme = 6;  // bytes; longer ones are mapped character by character

// Parts of a unit (Darts-clone, darts.h).
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t leaf_value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t unit_label(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t child_offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200u) >> 6); }

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

// Calls visit(grapheme) for every extended grapheme cluster.
template <typename Visit>
void for_each_grapheme(std::string_view text, Visit visit) {
  utf8proc_int32_t state = 0;
  size_t begin = 0, position = 0;
  char32_t previous = 0;
  while (position < text.size()) {
    const size_t start = position;
    char32_t next = next_code_point(text, &position);
    if (is_new_joiner(next)) next = kJoiner;
    const bool cut =
        start > 0 && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous),
                                                      static_cast<utf8proc_int32_t>(next), &state);
    if (cut) {
      visit(text.substr(begin, start - begin));
      begin = start;
    }
    previous = next;
  }
  if (begin < text.size()) visit(text.substr(begin));
}

}  // namespace

Result<std::string> parse_base64(std::string_view text) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1) return invalid_input("base64 text of an impossible length");
  std::string out;
  uint32_t bits = 0;
  int count = 0;  // of bits
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = base64_digit(text[i]);
    if (digit < 0) return invalid_input(cat("character ", i, " is no base64 digit"));
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

Result<CharsMap> CharsMap::parse(std::string_view base64) {
  CharsMap out;
  BRAID_ASSIGN(const std::string bytes, parse_base64(base64));
  if (bytes.empty()) return out;
  const std::string_view view = bytes;
  const size_t trie = view.size() < 4 ? 0 : little_endian(view);
  if (trie == 0 || trie % 4 != 0 || trie > view.size() - 4)
    return invalid_input("precompiled_charsmap: its trie does not fit into it");
  for (size_t i = 4; i < 4 + trie; i += 4) out.units_.push_back(little_endian(view.substr(i)));
  out.texts_ = std::string(view.substr(4 + trie));
  if (find_invalid_utf8(out.texts_) != std::string_view::npos)
    return invalid_input("precompiled_charsmap: its texts are no UTF-8");
  return out;
}

bool CharsMap::append_replacement(std::string_view chunk, std::string* out) const {
  if (units_.empty()) return false;
  size_t node = child_offset(units_[0]);
  for (const char c : chunk) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return false;
    node ^= byte;
    if (node >= units_.size() || unit_label(units_[node]) != byte) return false;
    const uint32_t unit = units_[node];
    node ^= child_offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) return false;
    const size_t begin = leaf_value(units_[node]);
    if (begin > texts_.size() || (begin < texts_.size() && (texts_[begin] & 0xC0) == 0x80))
      return false;
    out->append(texts_, begin, texts_.find('\0', begin) - begin);
    return true;
  }
  return false;
}

void CharsMap::append_mapped(std::string_view grapheme, std::string* out) const {
  if (grapheme.size() < kLongGrapheme && append_replacement(grapheme, out)) return;
  for (size_t position = 0; position < grapheme.size();) {
    const size_t start = position;
    next_code_point(grapheme, &position);
    const std::string_view character = grapheme.substr(start, position - start);
    if (!append_replacement(character, out)) out->append(character);
  }
}

std::string CharsMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for_each_grapheme(text, [&](std::string_view grapheme) { append_mapped(grapheme, &out); });
  return out;
}

}  // namespace braid::inline data
