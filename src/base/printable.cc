#include "base/printable.h"

#include <algorithm>

namespace braid::inline base {
namespace {

bool is_control(unsigned char byte) { return byte < 0x20 || byte == 0x7f; }

void append_byte(unsigned char byte, bool escaped, std::string& out) {
  constexpr const char* kDigits = "0123456789abcdef";
  if (!escaped) {
    out += static_cast<char>(byte);
    return;
  }
  out += "\\x";
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    append_byte(byte, is_control(byte) && c != '\n' && c != '\t', out);
  }
  return out;
}

std::string excerpt(std::string_view text, size_t most) {
  const bool binary = text.find('\0') != std::string_view::npos;
  size_t end = std::min(text.size(), most);
  if (!binary)  // not within a character of UTF-8
    while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
      --end;
  std::string out;
  for (const char c : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    append_byte(byte, is_control(byte) || (binary && byte >= 0x80), out);
  }
  return end < text.size() ? out + "..." : out;
}

}  // namespace braid::inline base
