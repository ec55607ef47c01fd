// A text as a double-quoted YAML scalar that reads back equal, whatever bytes it has. Pure.
#pragma once

#include <string>

namespace braid::inline dataflow {

inline std::string yaml_quoted(const std::string& text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace braid::inline dataflow
