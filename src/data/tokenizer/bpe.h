// The BPE "model" of a tokenizer.json: byte-pair encoding of one word (Sennrich et al. 2016), with
// SentencePiece's byte fallback. Immutable after parsing except for a word cache with its own
// locks: const use is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/word_cache.h"

namespace braid::inline data {

// Pair of token ids → its merge; open addressing, filled once.
class MergeTable {
 public:
  struct Merge {
    int32_t rank;  // lower merges first
    int32_t id;    // of the merged token
  };
  explicit MergeTable(size_t count = 0);
  void set(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  size_t slot_of(uint64_t key) const;
  std::vector<Slot> slots_;
  int shift_ = 0;
};

class BpeModel {
 public:
  static Result<BpeModel> parse(const Json& json);

  // Appends the ids of a word. Characters outside the vocabulary become byte tokens, the unknown
  // token, or nothing, as the file says.
  Status encode(std::string_view word, std::vector<int32_t>* out) const;

  const TextMap<int32_t>& vocabulary() const { return vocabulary_; }

 private:
  struct Unknown;
  Status parse_options(const Json& json);
  Status parse_merges(const Json& json);
  Status add_merge(const std::string& left, const std::string& right, int32_t rank);
  void encode_cached(std::string_view word, std::vector<int32_t>* out) const;
  void encode_word(std::string_view word, std::vector<int32_t>* out) const;
  void split_characters(std::string_view word, std::vector<int32_t>* out) const;
  void add_unknown(std::string_view character, Unknown* pending, std::vector<int32_t>* out) const;
  int32_t character_id(std::string_view character, bool is_first, bool is_last) const;

  TextMap<int32_t> vocabulary_;
  MergeTable merges_;
  std::optional<int32_t> unknown_id_;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  bool byte_fallback_ = false;
  std::vector<int32_t> byte_tokens_;  // [256], -1 where the vocabulary has no <0xNN>
  std::string continuing_prefix_;
  std::string word_suffix_;
  bool cut_at_spaces_ = false;  // no token reaches over the beginning of a run of U+2581
  std::shared_ptr<WordCache> cache_;
};

}  // namespace braid::inline data
