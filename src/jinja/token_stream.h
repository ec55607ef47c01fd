// The tokens of a template, read one after another. Belongs to one parser.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "jinja/lexer.h"

namespace braid::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& previous() const { return tokens_[at_ - 1]; }
  int line() const { return current().line; }

  // Byte behind the end of the block tag that is being read.
  size_t end_of_tag() const {
    size_t at = at_;
    while (tokens_[at].kind != Token::Kind::kBlockEnd && tokens_[at].kind != Token::Kind::kEnd)
      ++at;
    return tokens_[at].end;
  }

  // The current token; the one behind it becomes current.
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view name) { return skip(current().is_name(name)); }
  bool skip_operator(std::string_view op) { return skip(current().is_operator(op)); }

  Status expect_name(std::string_view name) {
    return skip_name(name) ? ok_status() : unexpected(cat("'", name, "'"));
  }
  Status expect_operator(std::string_view op) {
    return skip_operator(op) ? ok_status() : unexpected(cat("'", op, "'"));
  }
  Status expect(Token::Kind kind, const char* what) {
    return skip(current().kind == kind) ? ok_status() : unexpected(what);
  }
  Result<std::string> identifier() {
    if (current().kind != Token::Kind::kName) return unexpected("a name");
    return next().text;
  }

  Status fail(const std::string& message) const {
    return invalid_input(cat("line ", line(), ": ", message));
  }
  Status unexpected(const std::string& wanted) const {
    return fail(cat("expected ", wanted, ", found ", describe(current())));
  }
  static std::string describe(const Token& token);

 private:
  bool skip(bool condition) {
    if (condition) next();
    return condition;
  }
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace braid::jinja
