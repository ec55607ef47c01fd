#include "jinja/token_stream.h"

namespace braid::jinja {

std::string TokenStream::describe(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kData:
      return "text outside of a tag";
    case Token::Kind::kVariableBegin:
      return "'{{'";
    case Token::Kind::kVariableEnd:
      return "'}}'";
    case Token::Kind::kBlockBegin:
      return "'{%'";
    case Token::Kind::kBlockEnd:
      return "'%}'";
    case Token::Kind::kText:
      return "a text in quotes";
    case Token::Kind::kNumber:
      return "a number";
    case Token::Kind::kEnd:
      return "the end of the template";
    default:
      return cat("'", token.text, "'");
  }
}

}  // namespace braid::jinja
