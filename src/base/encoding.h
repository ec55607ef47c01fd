// How text files may begin. Pure.
#pragma once

#include <string_view>

namespace braid::inline base {

// The text after the byte-order mark that some editors write before UTF-8.
inline std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.substr(0, kMark.size()) == kMark ? text.substr(kMark.size()) : text;
}

}  // namespace braid::inline base
