// A template as tokens, with the white space around its tags already removed as transformers sets
// Jinja up: trim_blocks (the line end behind a block tag goes) and lstrip_blocks (so do the blanks
// before one that begins its line). Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/value.h"

namespace braid::jinja {

struct Token {
  enum class Kind {
    kData,  // text outside of tags
    kVariableBegin,
    kVariableEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kText,
    kNumber,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of data, name or operator; the value of a text in quotes
  Value number;      // of kNumber
  int line = 0;      // from 1
  size_t begin = 0;  // byte in the source
  size_t end = 0;

  bool is(Kind wanted, std::string_view value) const { return kind == wanted && text == value; }
  bool is_name(std::string_view value) const { return is(Kind::kName, value); }
  bool is_operator(std::string_view value) const { return is(Kind::kOperator, value); }
};

// The source with line ends as \n and without the last of them, which is what tokens count in.
std::string normalized_source(std::string_view source);

// Tokens of a normalized source, kEnd at the end; errors begin with "line N: ".
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace braid::jinja
