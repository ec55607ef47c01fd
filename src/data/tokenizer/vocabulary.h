// The "vocab" object of a model: token text to id. Pure function.
#pragma once

#include "base/json.h"
#include "data/tokenizer/word_cache.h"

namespace braid::inline data {

// Errors name an entry that is no id.
Result<TextMap<int32_t>> parse_vocabulary(const Json& model);

}  // namespace braid::inline data
