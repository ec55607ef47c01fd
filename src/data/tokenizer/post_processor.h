// The "post_processor" of a tokenizer.json: the special tokens around a single text. Immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json.h"

namespace braid::inline data {

struct PostProcessor {
  std::vector<int32_t> prefix;  // ids in front of the text, such as BOS
  std::vector<int32_t> suffix;  // ids behind it, such as EOS
};

// Reads the JSON value (null: nothing is added); an unsupported type is an error that names it.
Result<PostProcessor> parse_post_processor(const Json& json);

}  // namespace braid::inline data
