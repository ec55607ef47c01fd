// A text on its way through the tokenizer: one buffer and the pieces it is cut into.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid::inline data {

// Bytes [begin, end) of the buffer.
struct Piece {
  size_t begin = 0;
  size_t end = 0;
  int32_t token_id = -1;  // an added token found in the text; such a piece is not cut further
  bool at_start = false;  // begins where the original text begins

  bool is_token() const { return token_id >= 0; }
};

struct Pieces {
  std::string text;
  std::vector<Piece> items;

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

}  // namespace braid::inline data
