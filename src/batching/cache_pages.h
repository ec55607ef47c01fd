// Pages of the cache of keys and values: what a generation engine gives to a sequence at a time.
// Plain values; thread-safe.
#pragma once

#include <cstdint>

namespace braid::inline batching {

// Tokens per page, and per step of the attention reduction: prefill, decode and training sum over
// keys in blocks of this many positions, in order, so that they give the same bits.
inline constexpr int64_t kPageTokens = 32;

// Pages that hold so many tokens.
constexpr int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace braid::inline batching
