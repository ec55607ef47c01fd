// The Unigram "model" of a tokenizer.json: of all ways to cut a word into tokens, the one whose
// scores add up to most (Kudo 2018, "Subword Regularization"; Viterbi search). Immutable after
// parsing but for a cache with its own locks: const use is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/word_cache.h"

namespace braid::inline data {

// Token texts in the order of their bytes, for finding all that a text begins with.
class PrefixIndex {
 public:
  PrefixIndex() = default;
  explicit PrefixIndex(const TextMap<int32_t>& vocabulary);

  // Calls visit(bytes, id) for every token that `text` begins with, shorter ones first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const;

 private:
  using Range = std::pair<size_t, size_t>;
  // Of `range`, whose tokens share `depth` bytes, those that go on with `byte`.
  Range narrowed(Range range, size_t depth, uint8_t byte) const;

  std::vector<std::pair<std::string, int32_t>> tokens_;
  std::vector<size_t> begins_;  // [257] first token of each first byte
};

class UnigramModel {
 public:
  static Result<UnigramModel> parse(const Json& json);

  // Appends the ids of a word. A run of characters without tokens becomes byte tokens or one
  // unknown token; without either it is an error.
  Status encode(std::string_view word, std::vector<int32_t>* out) const;

  const TextMap<int32_t>& vocabulary() const { return vocabulary_; }

 private:
  // The best way to the end of some prefix of a word.
  struct BestPath {
    double score = 0;
    int32_t last_id = -1;     // of its last token
    int64_t last_begin = -1;  // where that begins; -1: no way is known yet
  };
  Status parse_vocabulary(const Json& json);
  Result<std::vector<BestPath>> best_paths(std::string_view word) const;
  Status append_part(std::string_view part, std::vector<int32_t>* out) const;
  Status encode_word(std::string_view word, std::vector<int32_t>* out) const;

  TextMap<int32_t> vocabulary_;
  std::vector<double> scores_;  // [vocabulary] by id
  PrefixIndex index_;
  std::optional<int32_t> unknown_id_;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
  std::vector<int32_t> byte_tokens_;  // [256], -1 where there is none
  std::shared_ptr<WordCache> cache_;
};

}  // namespace braid::inline data
