// From bytes of a text to tokens. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "jinja/template.h"

namespace braid::inline data {

// [ids] 1 for every token that has a byte in one of the spans of the text that it encodes. Where
// the tokenizer changes texts (normalization), tokens are counted in front of each end of a span.
Result<std::vector<uint8_t>> token_mask(const Tokenizer& tokenizer, const std::string& text,
                                        const std::vector<int32_t>& ids,
                                        const std::vector<jinja::Span>& spans);

}  // namespace braid::inline data
