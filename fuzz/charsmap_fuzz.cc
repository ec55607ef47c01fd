// A precompiled_charsmap in base64 on the first line, and a text for it behind.
#include "base/status.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(all.find('\n'), all.size());
  const auto map = braid::CharsMap::parse(all.substr(0, border));
  const std::string_view text = border < all.size() ? all.substr(border + 1) : "";
  if (!map.ok() || braid::find_invalid_utf8(text) != std::string_view::npos) return 0;
  BRAID_CHECK(braid::find_invalid_utf8(map->apply(text)) == std::string_view::npos, "not UTF-8");
  return 0;
}
