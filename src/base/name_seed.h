// A seed for something that has a name. Pure function.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/rng.h"

namespace braid::inline base {

// FNV-1a of the name, mixed with the seed.
inline uint64_t name_seed(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return mix_seed(seed, hash);
}

}  // namespace braid::inline base
