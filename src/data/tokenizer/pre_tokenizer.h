// The "pre_tokenizer" of a tokenizer.json: cuts normalized text into words before byte-pair
// encoding. Immutable after parsing, shared by threads.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/pieces.h"
#include "data/tokenizer/regex.h"

namespace braid::inline data {

// What becomes of a match (the delimiter) when a text is split.
enum class SplitBehavior {
  kRemoved,             // dropped
  kIsolated,            // a piece of its own
  kMergedWithPrevious,  // the end of the piece before it
  kMergedWithNext,      // the beginning of the piece behind it
  kContiguous,          // neighbouring matches form one piece
};

struct SplitStep {
  Regex pattern;
  SplitBehavior behavior;
  bool invert;  // matches are the pieces and gaps the delimiters
};
// Cuts at every character of a class.
struct CharacterStep {
  bool (*is_delimiter)(char32_t);
  SplitBehavior behavior;
};
// Bytes become the printable characters of GPT-2's table; a leading space is added on request.
struct PrefixSpaceStep {};
struct ByteMapStep {};
struct MetaspaceStep {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement;
  Prepend prepend;
  std::optional<Regex> delimiter;  // set when words are cut before each replacement character
};
using PreTokenizerStep =
    std::variant<SplitStep, CharacterStep, PrefixSpaceStep, ByteMapStep, MetaspaceStep>;

class PreTokenizer {
 public:
  // Reads the JSON value (null: no cutting); an unsupported type is an error that names it.
  static Result<PreTokenizer> parse(const Json& json);

  // Cuts and rewrites every piece that is no token.
  Status apply(Pieces* pieces) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

// UTF-8 text of the printable character that stands for each byte (GPT-2's encoder.py).
const std::array<std::string, 256>& byte_level_characters();

// The byte that a printable character stands for, or -1.
int byte_of_character(char32_t code_point);

}  // namespace braid::inline data
