// Regular expressions of tokenizer files (Oniguruma syntax) run by PCRE2 with Unicode classes.
// A Regex is immutable and shared by threads; scratch memory is per thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid::inline data {

// Bytes [begin, end) of a text; is_match tells a match from the gap between two.
struct TextSpan {
  size_t begin;
  size_t end;
  bool is_match;
};

class Regex {
 public:
  // A pattern in the syntax of tokenizer.json; what PCRE2 would read differently is an error.
  static Result<Regex> compile(const std::string& pattern);
  // Finds exactly this text.
  static Result<Regex> literal(const std::string& text);

  // Matches, which may be empty, and gaps; they cover the text from begin to end, in order. Fails
  // when the matcher runs out of its limits. REQUIRES well-formed UTF-8.
  Status find_all(std::string_view text, std::vector<TextSpan>* out) const;

 private:
  Regex() = default;
  static Result<Regex> build(const std::string& pattern, unsigned options);

  std::shared_ptr<void> code_;  // pcre2_code
  bool is_literal_ = false;
};

}  // namespace braid::inline data
