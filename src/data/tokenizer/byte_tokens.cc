#include "data/tokenizer/byte_tokens.h"

#include <cstdio>

namespace braid::inline data {

std::vector<int32_t> find_byte_tokens(const TextMap<int32_t>& vocabulary) {
  std::vector<int32_t> out(256, -1);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    const auto found = vocabulary.find(std::string_view(name));
    if (found != vocabulary.end()) out[static_cast<size_t>(byte)] = found->second;
  }
  return out;
}

bool append_bytes(std::string_view text, const std::vector<int32_t>& byte_tokens,
                  std::vector<int32_t>* out) {
  for (const char byte : text)
    if (byte_tokens[static_cast<uint8_t>(byte)] < 0) return false;
  for (const char byte : text) out->push_back(byte_tokens[static_cast<uint8_t>(byte)]);
  return true;
}

}  // namespace braid::inline data
