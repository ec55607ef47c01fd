// What stands behind a value: attributes, items, calls, filters and tests.
#include "jinja/expression_parser.h"

namespace braid::jinja {

Result<ExprPtr> ExpressionParser::postfix(ExprPtr value) {
  while (true) {
    BRAID_TRY(deeper());  // restored by the caller, signed_value or test_arguments
    if (tokens_.current().is_operator(".") || tokens_.current().is_operator("[")) {
      BRAID_ASSIGN(value, subscript(std::move(value)));
    } else if (tokens_.current().is_operator("(")) {
      BRAID_ASSIGN(value, call(std::move(value)));
    } else {
      return value;
    }
  }
}

Result<ExprPtr> ExpressionParser::behind_value(ExprPtr value) {
  while (true) {
    BRAID_TRY(deeper());
    if (tokens_.current().is_operator("|")) {
      tokens_.next();
      BRAID_ASSIGN(value, filter(std::move(value)));
    } else if (tokens_.current().is_name("is")) {
      BRAID_ASSIGN(value, test(std::move(value)));
    } else if (tokens_.current().is_operator("(")) {
      BRAID_ASSIGN(value, call(std::move(value)));
    } else {
      return value;
    }
  }
}

Result<ExprPtr> ExpressionParser::subscript(ExprPtr value) {
  const Token& token = tokens_.next();
  if (token.text == "[") return brackets(std::move(value), token.line);
  const Token& name = tokens_.next();
  if (name.kind == Token::Kind::kName) {
    ExprPtr out = make_expr(Expr::Kind::kAttribute, token.line, std::move(value));
    out->name = name.text;
    return out;
  }
  if (name.kind != Token::Kind::kNumber || !name.number.is_int())
    return tokens_.fail("expected a name or a number behind the dot");
  ExprPtr index = make_expr(Expr::Kind::kConstant, token.line);
  index->value = name.number;
  ExprPtr out = make_expr(Expr::Kind::kItem, token.line, std::move(value));
  out->parts.push_back(std::move(index));
  return out;
}

Result<ExprPtr> ExpressionParser::brackets(ExprPtr value, int line) {
  std::vector<ExprPtr> keys;
  while (!tokens_.current().is_operator("]")) {
    if (!keys.empty()) BRAID_TRY(tokens_.expect_operator(","));
    BRAID_ASSIGN(ExprPtr key, slice_part());
    keys.push_back(std::move(key));
  }
  tokens_.next();
  if (keys.size() == 1 && keys[0]->kind == Expr::Kind::kSlice && keys[0]->parts[0] == nullptr) {
    keys[0]->parts[0] = std::move(value);
    return std::move(keys[0]);
  }
  ExprPtr out = make_expr(Expr::Kind::kItem, line, std::move(value));
  if (keys.size() == 1) {
    out->parts.push_back(std::move(keys[0]));
    return out;
  }
  for (const ExprPtr& key : keys)
    if (key->kind == Expr::Kind::kSlice && key->parts[0] == nullptr)
      return tokens_.fail("a slice beside other keys");
  out->parts.push_back(make_expr(Expr::Kind::kTuple, line));
  out->parts.back()->parts = std::move(keys);
  return out;
}

// A key, or begin:end:step as a slice whose value (parts[0]) is still missing.
Result<ExprPtr> ExpressionParser::slice_part() {
  ExprPtr begin;
  if (!tokens_.current().is_operator(":")) {
    BRAID_ASSIGN(begin, expression());
    if (!tokens_.current().is_operator(":")) return begin;
  }
  ExprPtr out = make_expr(Expr::Kind::kSlice, tokens_.line(), nullptr);
  out->parts.push_back(std::move(begin));
  for (int i = 0; i < 2; ++i) {
    ExprPtr part;
    const bool given = tokens_.skip_operator(":");
    const Token& token = tokens_.current();
    if (given && !token.is_operator(":") && !token.is_operator("]") && !token.is_operator(",")) {
      BRAID_ASSIGN(part, expression());
    }
    out->parts.push_back(std::move(part));
  }
  return out;
}

Result<ExprPtr> ExpressionParser::call(ExprPtr value) {
  ExprPtr out = make_expr(Expr::Kind::kCall, tokens_.line(), std::move(value));
  BRAID_TRY(call_arguments(&out->arguments));
  return out;
}

Status ExpressionParser::call_arguments(CallArguments* out) {
  BRAID_TRY(tokens_.expect_operator("("));
  for (bool first = true; !tokens_.current().is_operator(")"); first = false) {
    if (!first) {
      BRAID_TRY(tokens_.expect_operator(","));
      if (tokens_.current().is_operator(")")) break;
    }
    BRAID_TRY(call_argument(out));
  }
  tokens_.next();
  return ok_status();
}

Status ExpressionParser::call_argument(CallArguments* out) {
  const bool is_rest = tokens_.current().is_operator("*");
  const bool is_named_rest = tokens_.current().is_operator("**");
  const bool is_named =
      tokens_.current().kind == Token::Kind::kName && tokens_.look().is_operator("=");
  const bool fits =
      out->named_rest == nullptr &&
      (is_named_rest || is_named || (out->rest == nullptr && (is_rest || out->named.empty())));
  if (!fits) return tokens_.fail("the arguments of this call are in an order that is not allowed");
  std::string name;
  if (is_rest || is_named_rest) tokens_.next();
  if (is_named) {
    name = tokens_.next().text;
    tokens_.next();
    for (const auto& [other, value] : out->named)
      if (other == name) return tokens_.fail(cat("the argument '", name, "' is given twice"));
  }
  BRAID_ASSIGN(ExprPtr value, expression());
  if (is_rest)
    out->rest = std::move(value);
  else if (is_named_rest)
    out->named_rest = std::move(value);
  else if (is_named)
    out->named.emplace_back(std::move(name), std::move(value));
  else
    out->positional.push_back(std::move(value));
  return ok_status();
}

Result<std::string> ExpressionParser::dotted_name() {
  BRAID_ASSIGN(std::string name, tokens_.identifier());
  while (tokens_.skip_operator(".")) {
    BRAID_ASSIGN(const std::string part, tokens_.identifier());
    name += "." + part;
  }
  return name;
}

Result<ExprPtr> ExpressionParser::filter(ExprPtr value) {
  ExprPtr out = make_expr(Expr::Kind::kFilter, tokens_.line());
  if (value != nullptr) out->parts.push_back(std::move(value));
  BRAID_ASSIGN(out->name, dotted_name());
  out->builtin = find_filter(out->name);
  note_unknown("filter", *out);
  if (tokens_.current().is_operator("(")) BRAID_TRY(call_arguments(&out->arguments));
  return out;
}

Result<ExprPtr> ExpressionParser::filters(ExprPtr value, bool started) {
  const int before = depth_;
  while (started || tokens_.current().is_operator("|")) {
    BRAID_TRY(deeper());
    if (!started) tokens_.next();
    started = false;
    BRAID_ASSIGN(value, filter(std::move(value)));
  }
  depth_ = before;
  return value;
}

Result<ExprPtr> ExpressionParser::test(ExprPtr value) {
  const int line = tokens_.next().line;
  const bool negated = tokens_.skip_name("not");
  ExprPtr out = make_expr(Expr::Kind::kTest, line, std::move(value));
  BRAID_ASSIGN(out->name, dotted_name());
  out->builtin = find_test(out->name);
  note_unknown("test", *out);
  BRAID_TRY(test_arguments(&out->arguments));
  if (negated) return make_expr(Expr::Kind::kNot, line, std::move(out));
  return out;
}

// In brackets, or one value without them: "is divisibleby 3".
Status ExpressionParser::test_arguments(CallArguments* out) {
  const Token& token = tokens_.current();
  if (token.is_operator("(")) return call_arguments(out);
  const bool is_value = token.kind == Token::Kind::kName || token.kind == Token::Kind::kText ||
                        token.kind == Token::Kind::kNumber || token.is_operator("[") ||
                        token.is_operator("{");
  if (!is_value || token.is_name("else") || token.is_name("or") || token.is_name("and"))
    return ok_status();
  if (token.is_name("is")) return tokens_.fail("tests with 'is' cannot be chained");
  BRAID_ASSIGN(ExprPtr value, primary(false));
  BRAID_ASSIGN(value, postfix(std::move(value)));
  out->positional.push_back(std::move(value));
  return ok_status();
}

}  // namespace braid::jinja
