// Conversations to ids with the template that comes with a tokenizer. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/tokenizer.h"

namespace braid {

// Ids of [{"role", "content"}, …] in the tokenizer's own chat template, with exactly one BOS;
// add_generation_prompt ends with the beginning of the assistant's turn. A template that Braid does
// not know is an error that names the known ones and the script for the others.
Result<std::vector<int32_t>> render_messages(const Tokenizer& tokenizer, const Json& messages,
                                             bool add_generation_prompt);

}  // namespace braid
