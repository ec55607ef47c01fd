// A number for a name, the same on all ranks.
#pragma once

#include <cstdint>
#include <string_view>

namespace braid::inline comm {

// FNV-1a.
inline uint64_t name_hash(std::string_view name) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ULL;
  return hash;
}

}  // namespace braid::inline comm
