// Tokens that stand for one byte, "<0x00>" to "<0xFF>" (SentencePiece's byte fallback). Pure
// functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer/word_cache.h"

namespace braid::inline data {

// [256] ids, -1 where the vocabulary has no such token.
std::vector<int32_t> find_byte_tokens(const TextMap<int32_t>& vocabulary);

// Appends the tokens of a text's bytes; false, and nothing appended, when one is missing.
bool append_bytes(std::string_view text, const std::vector<int32_t>& byte_tokens,
                  std::vector<int32_t>* out);

}  // namespace braid::inline data
