// The "normalizer" of a tokenizer.json: a list of text rewriting steps. Immutable after parsing,
// shared by threads.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/regex.h"

namespace braid::inline data {

struct PrependText {
  std::string text;  // put in front of a text that is not empty
};
struct ReplacePattern {
  Regex pattern;
  std::string content;
};
struct UnicodeForm {
  int options;  // of utf8proc
};
struct LowercaseText {};
struct StripSpace {
  bool left;
  bool right;
};
struct DropMarks {};  // StripAccents
// BERT's: control characters out, other white space to blanks, blanks around ideographs, accents
// out.
struct CleanForBert {
  bool clean_text;
  bool separate_ideographs;
  bool strip_accents;
};
// SentencePiece's rules of its NMT models for control and white space characters.
struct CleanForNmt {};
using NormalizerStep = std::variant<PrependText, ReplacePattern, UnicodeForm, LowercaseText,
                                    StripSpace, DropMarks, CleanForBert, CleanForNmt, CharsMap>;

class Normalizer {
 public:
  // Reads the JSON value (null: no steps); an unsupported type is an error that names it.
  static Result<Normalizer> parse(const Json& json);

  bool empty() const { return steps_.empty(); }
  // REQUIRES well-formed UTF-8; the result is well-formed.
  Result<std::string> apply(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// A "pattern" object: {"String": text} or {"Regex": pattern}.
Result<Regex> parse_pattern(const Json& json);

// The text with every match replaced by content.
Result<std::string> replace_all(const Regex& pattern, std::string_view text,
                                std::string_view content);

}  // namespace braid::inline data
