// Splits samples into micro-batches by a token budget. Pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid {

// Indices of the samples of each micro-batch: consecutive samples, in order, as many as fit in
// micro_tokens tokens. A sample that is longer than the budget is a micro-batch of its own. Every
// sample is in exactly one micro-batch, and none is empty.
std::vector<std::vector<size_t>> pack_micro_batches(const std::vector<int64_t>& token_counts,
                                                    int64_t micro_tokens);

}  // namespace braid
