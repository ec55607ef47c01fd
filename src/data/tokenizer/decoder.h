// The "decoder" of a tokenizer.json as a stream: tokens go in one by one, text comes out as soon as
// no later token can change it. TokenDecoder is immutable and shared by threads; a DecodeStream
// belongs to one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/regex.h"

namespace braid::inline data {

struct DecoderStep {
  enum class Kind {
    kJoinWithSpaces,  // a file without decoder: tokens separated by spaces
    kByteLevel,       // printable characters become bytes; all tokens become one text
    kByteFallback,    // runs of <0xNN> become characters
    kFuse,            // all tokens become one text
    kReplace,
    kStrip,
    kMetaspace,
    kWordPiece,  // tokens separated by spaces but for those with the prefix, which loses it
  };
  Kind kind = Kind::kFuse;
  std::vector<Regex> pattern;  // kReplace: one
  std::string
      content;  // kReplace: the new text; kStrip, kMetaspace: the character; kWordPiece: prefix
  size_t strip_start = 0;    // characters
  size_t strip_end = 0;      // characters
  bool drop_first = true;    // kMetaspace: replacement characters of the first token vanish
  bool tidy = false;         // kWordPiece: no space before punctuation and contractions
  bool fused_input = false;  // gets parts of one long token instead of tokens
  bool needs_all = false;    // can only work on the whole text: holds everything until the end
};

struct TokenDecoder {
  std::vector<DecoderStep> steps;
};

// Reads the JSON value; an unsupported type is an error that names it.
Result<TokenDecoder> parse_decoder(const Json& json);

class DecodeStream {
 public:
  // REQUIRES: decoder outlives the stream.
  explicit DecodeStream(const TokenDecoder& decoder);

  // The text that became certain with this token; whole UTF-8 characters.
  Result<std::string> push(std::string_view token);
  // The rest. REQUIRES: no push afterwards.
  Result<std::string> finish();

 private:
  struct State {
    std::string pending;  // bytes that wait for later tokens
    size_t count = 0;     // tokens seen (kJoinWithSpaces, kMetaspace), characters stripped (kStrip)
    bool open = true;     // kStrip: still at the start of the text
  };

  Status feed(size_t step, std::string_view token);
  Status apply(size_t step, std::string_view token);
  Status flush(size_t step);
  Status decode_bytes(size_t step, std::string_view token);
  Status decode_fallback(size_t step, std::string_view token);
  Status end_byte_run(size_t step);
  Status strip_token(size_t step, std::string_view token);
  Status strip_part(size_t step, std::string_view part);
  Status join_pieces(size_t step, std::string_view token);
  Status replace_marks(size_t step, std::string_view token);

  const TokenDecoder& decoder_;
  std::vector<State> states_;
  std::string out_;
};

}  // namespace braid::inline data
