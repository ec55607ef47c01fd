// The "model" of a tokenizer.json, of whichever type: words to token ids. Immutable after parsing
// but for caches with their own locks: const use is thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unigram.h"
#include "data/tokenizer/word_piece.h"

namespace braid::inline data {

class TokenModel {
 public:
  // An unsupported type is an error that names it.
  static Result<TokenModel> parse(const Json& json);

  // Appends the ids of a word.
  Status encode(std::string_view word, std::vector<int32_t>* out) const;

  const TextMap<int32_t>& vocabulary() const;

 private:
  std::variant<BpeModel, UnigramModel, WordPieceModel> model_;
};

}  // namespace braid::inline data
