// SentencePiece's "precompiled_charsmap": a map from short texts to texts, as a double-array trie
// (Darts-clone's units) and the texts it points to. Immutable after parsing, shared by threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline data {

class CharsMap {
 public:
  // Reads the base64 text of a tokenizer.json. A trie whose parts lie outside of it is an error.
  static Result<CharsMap> parse(std::string_view base64);

  // The text with every grapheme of less than six bytes, else every character of it, replaced where
  // the map says so. What the map finds is the shortest beginning of a grapheme, which then stands
  // for all of it: so does the reference. REQUIRES well-formed UTF-8; the result is well-formed.
  std::string apply(std::string_view text) const;

 private:
  void append_mapped(std::string_view grapheme, std::string* out) const;
  // True when the map has a text for a beginning of `chunk`, which is appended.
  bool append_replacement(std::string_view chunk, std::string* out) const;

  std::vector<uint32_t> units_;
  std::string texts_;  // each ends in a 0
};

// Bytes of a base64 text; padding may be missing.
Result<std::string> parse_base64(std::string_view text);

}  // namespace braid::inline data
