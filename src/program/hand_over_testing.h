// What the tests of hand-overs and of copies ahead of them have in common. Only tests include this.
// Pure.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "program/hand_over.h"

namespace braid::inline program {

// Progress of samples with these new tokens, negative where they have not finished, and prompts of
// ten.
inline std::vector<SampleProgress> progress_of(const std::vector<int64_t>& produced) {
  std::vector<SampleProgress> out;
  for (const int64_t tokens : produced) out.push_back({10, std::abs(tokens), tokens > 0});
  return out;
}

}  // namespace braid::inline program
