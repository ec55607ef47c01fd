// The text of a response that stop strings may have ended: what people and rewards see of it. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace braid::inline data {

// Where a text ends: before the first stop string in it, else at npos.
size_t stop_position(const std::vector<std::string>& stops, const std::string& text);

// The ids decoded without special tokens, up to the first stop string. Errors: ids that the
// tokenizer does not have.
Result<std::string> response_text(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                  const std::vector<std::string>& stops);

}  // namespace braid::inline data
