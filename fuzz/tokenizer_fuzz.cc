// A tokenizer.json on the first line, and a text for it behind: ids and the text that they become.
#include "data/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(all.find('\n'), all.size());
  const auto tokenizer = braid::parse_tokenizer(all.substr(0, border), "fuzz.json");
  if (!tokenizer.ok() || border == all.size()) return 0;
  const auto ids = tokenizer->encode(all.substr(border + 1), true);
  if (ids.ok()) (void)tokenizer->decode(*ids, false);
  return 0;
}
