// The WordPiece "model" of a tokenizer.json: a word is cut into the longest tokens that fit, from
// its beginning on (Devlin et al. 2019, BERT's tokenization.py). Immutable after parsing, shared by
// threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/word_cache.h"

namespace braid::inline data {

class WordPieceModel {
 public:
  static Result<WordPieceModel> parse(const Json& json);

  // Appends the ids of a word; one that cannot be cut into tokens is the unknown token as a whole.
  Status encode(std::string_view word, std::vector<int32_t>* out) const;

  const TextMap<int32_t>& vocabulary() const { return vocabulary_; }

 private:
  // The longest token that word begins with at `begin`; *end moves behind it. -1: there is none.
  int32_t longest_piece(std::string_view word, size_t begin, size_t* end) const;

  TextMap<int32_t> vocabulary_;
  std::optional<int32_t> unknown_id_;
  std::string continuing_prefix_;
  int64_t max_characters_ = 0;  // longer words are unknown
  size_t longest_token_ = 0;    // bytes
};

}  // namespace braid::inline data
