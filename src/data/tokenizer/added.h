// The "added_tokens" of a tokenizer.json: texts that become one token before normalization (or, for
// normalized ones, after it). Immutable after build(), shared by threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pieces.h"

namespace braid::inline data {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  std::string matched;       // content as the text shows it: normalized where that applies
  bool single_word = false;  // only between characters that are no word characters
  bool lstrip = false;       // takes the white space on its left along
  bool rstrip = false;       // takes the white space on its right along
  bool normalized = false;   // looked for in the normalized text
  bool special = false;
};

// Finds the longest of many texts at a position.
class TextMatcher {
 public:
  TextMatcher();
  void add(std::string_view text, int32_t index);  // the first index of equal texts counts
  bool empty() const { return nodes_.size() == 1; }
  // Length in bytes of the longest text at position, 0 for none; *index receives its index.
  size_t match(std::string_view text, size_t position, int32_t* index) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;
    int32_t index = -1;
  };
  int32_t child(int32_t node, uint8_t byte) const;
  std::vector<Node> nodes_;
  std::vector<bool> starts_;  // [256] bytes that begin a text
};

class AddedTokens {
 public:
  // Ids follow the reference, which gives them out anew: a text of the vocabulary keeps its id
  // there, any other gets the next free one in the order of the file.
  static Result<AddedTokens> parse(const Json& json, const Normalizer& normalizer,
                                   const TextMap<int32_t>& vocabulary);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find_id(int32_t id) const;
  const AddedToken* find_content(const std::string& content) const;
  bool is_special(int32_t id) const;

  // Cuts a raw text at its added tokens and normalizes what lies between.
  Result<Pieces> extract(std::string_view text, const Normalizer& normalizer) const;

 private:
  void assign_ids(const TextMap<int32_t>& vocabulary);
  Status build_index(const Normalizer& normalizer);
  void find_matches(std::string_view text, const TextMatcher& matcher,
                    std::vector<Piece>* out) const;
  Status append_normalized(std::string_view text, bool at_start, const Normalizer& normalizer,
                           Pieces* out) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, int32_t> index_of_id_;
  std::unordered_map<std::string, int32_t> index_of_content_;
  TextMatcher raw_;
  TextMatcher normalized_;
};

}  // namespace braid::inline data
