// Applies merges to a word's symbols. Pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "data/tokenizer/bpe.h"

namespace braid::inline data {

// Merges neighbours, lowest rank first and leftmost first among equal ranks, until none is left.
// Short words are searched linearly, long ones with a queue: O(n log n).
void apply_merges(const MergeTable& merges, std::vector<int32_t>* symbols);

}  // namespace braid::inline data
