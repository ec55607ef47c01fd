// The grammar of expressions, from the loosest operator to the tightest; that of jinja2/parser.py.
#include "jinja/expression_parser.h"

#include <algorithm>

namespace braid::jinja {
namespace {

constexpr int kMostDepth = 400;  // of expressions in each other, and of operators in a row

// Restores the depth at the end of a rule.
class DepthGuard {
 public:
  explicit DepthGuard(int* depth) : depth_(depth), before_(*depth) {}
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  ~DepthGuard() { *depth_ = before_; }

 private:
  int* depth_;
  int before_;
};

ExprPtr make_pair(Expr::Kind kind, int line, ExprPtr left, ExprPtr right) {
  ExprPtr out = make_expr(kind, line, std::move(left));
  out->parts.push_back(std::move(right));
  return out;
}

}  // namespace

ExprPtr make_expr(Expr::Kind kind, int line) {
  auto out = std::make_unique<Expr>();
  out->kind = kind;
  out->line = line;
  return out;
}

ExprPtr make_expr(Expr::Kind kind, int line, ExprPtr part) {
  ExprPtr out = make_expr(kind, line);
  out->parts.push_back(std::move(part));
  return out;
}

Status ExpressionParser::deeper() {
  if (++depth_ <= kMostDepth) return ok_status();
  return tokens_.fail(cat("an expression of more than ", kMostDepth, " levels"));
}

void ExpressionParser::note_unknown(const char* what, const Expr& expr) {
  if (expr.builtin == nullptr && conditions == 0)
    unknown.push_back(cat("line ", expr.line, ": there is no ", what, " '", expr.name, "'"));
}

Result<ExprPtr> ExpressionParser::expression() {
  const DepthGuard guard(&depth_);
  BRAID_TRY(deeper());
  return condition();
}

Result<ExprPtr> ExpressionParser::condition() {
  const DepthGuard guard(&depth_);
  const size_t unknown_before = unknown.size();
  BRAID_ASSIGN(ExprPtr value, disjunction());
  const bool is_condition = tokens_.current().is_name("if");
  while (tokens_.current().is_name("if")) {
    const int line = tokens_.next().line;
    BRAID_TRY(deeper());
    BRAID_ASSIGN(ExprPtr test, disjunction());
    value = make_pair(Expr::Kind::kCondition, line, std::move(value), std::move(test));
    ExprPtr otherwise;
    if (tokens_.skip_name("else")) {
      BRAID_TRY(deeper());
      BRAID_ASSIGN(otherwise, condition());
    }
    value->parts.push_back(std::move(otherwise));
  }
  if (is_condition) unknown.resize(unknown_before);
  return value;
}

Result<ExprPtr> ExpressionParser::disjunction() {
  const DepthGuard guard(&depth_);
  BRAID_ASSIGN(ExprPtr left, conjunction());
  while (tokens_.current().is_name("or")) {
    const int line = tokens_.next().line;
    BRAID_TRY(deeper());
    BRAID_ASSIGN(ExprPtr right, conjunction());
    left = make_pair(Expr::Kind::kOr, line, std::move(left), std::move(right));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::conjunction() {
  const DepthGuard guard(&depth_);
  BRAID_ASSIGN(ExprPtr left, negation());
  while (tokens_.current().is_name("and")) {
    const int line = tokens_.next().line;
    BRAID_TRY(deeper());
    BRAID_ASSIGN(ExprPtr right, negation());
    left = make_pair(Expr::Kind::kAnd, line, std::move(left), std::move(right));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::negation() {
  if (!tokens_.current().is_name("not")) return comparison();
  const DepthGuard guard(&depth_);
  BRAID_TRY(deeper());
  const int line = tokens_.next().line;
  BRAID_ASSIGN(ExprPtr value, negation());
  return make_expr(Expr::Kind::kNot, line, std::move(value));
}

Result<ExprPtr> ExpressionParser::comparison() {
  static const std::vector<std::pair<const char*, Comparison>> kComparisons = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual},
  };
  BRAID_ASSIGN(ExprPtr first, sum());
  const int line = first->line;
  ExprPtr out = make_expr(Expr::Kind::kCompare, line, std::move(first));
  while (true) {
    const auto found = std::find_if(kComparisons.begin(), kComparisons.end(), [&](const auto& op) {
      return tokens_.current().is_operator(op.first);
    });
    const bool is_not_in = tokens_.current().is_name("not") && tokens_.look().is_name("in");
    if (found != kComparisons.end()) {
      out->comparisons.push_back(found->second);
    } else if (is_not_in) {
      tokens_.next();
      out->comparisons.push_back(Comparison::kNotIn);
    } else if (tokens_.current().is_name("in")) {
      out->comparisons.push_back(Comparison::kIn);
    } else {
      break;
    }
    tokens_.next();
    BRAID_ASSIGN(ExprPtr operand, sum());
    out->parts.push_back(std::move(operand));
  }
  if (out->comparisons.empty()) return std::move(out->parts[0]);
  return out;
}

// Operands with operators of one rank between them, grouped from the left.
Result<ExprPtr> ExpressionParser::chain(Rule operand,
                                        const std::vector<std::pair<const char*, Operator>>& ops) {
  const DepthGuard guard(&depth_);
  BRAID_ASSIGN(ExprPtr left, (this->*operand)());
  while (true) {
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const auto& op) {
      return tokens_.current().is_operator(op.first);
    });
    if (found == ops.end()) return left;
    const int line = tokens_.next().line;
    BRAID_TRY(deeper());
    BRAID_ASSIGN(ExprPtr right, (this->*operand)());
    left = make_pair(Expr::Kind::kBinary, line, std::move(left), std::move(right));
    left->op = found->second;
  }
}

Result<ExprPtr> ExpressionParser::sum() {
  static const std::vector<std::pair<const char*, Operator>> kOps = {{"+", Operator::kAdd},
                                                                     {"-", Operator::kSubtract}};
  return chain(&ExpressionParser::concatenation, kOps);
}

Result<ExprPtr> ExpressionParser::concatenation() {
  BRAID_ASSIGN(ExprPtr first, product());
  if (!tokens_.current().is_operator("~")) return first;
  const int line = first->line;
  ExprPtr out = make_expr(Expr::Kind::kConcat, line, std::move(first));
  while (tokens_.skip_operator("~")) {
    BRAID_ASSIGN(ExprPtr part, product());
    out->parts.push_back(std::move(part));
  }
  return out;
}

Result<ExprPtr> ExpressionParser::product() {
  static const std::vector<std::pair<const char*, Operator>> kOps = {{"*", Operator::kMultiply},
                                                                     {"/", Operator::kDivide},
                                                                     {"//", Operator::kFloorDivide},
                                                                     {"%", Operator::kModulo}};
  return chain(&ExpressionParser::power, kOps);
}

Result<ExprPtr> ExpressionParser::power() {
  static const std::vector<std::pair<const char*, Operator>> kOps = {{"**", Operator::kPower}};
  return chain(&ExpressionParser::unary, kOps);
}

Result<ExprPtr> ExpressionParser::signed_value(bool with_filters) {
  const DepthGuard guard(&depth_);
  BRAID_TRY(deeper());
  const bool minus = tokens_.current().is_operator("-");
  const int line = tokens_.line();
  ExprPtr value;
  if (minus || tokens_.current().is_operator("+")) {
    tokens_.next();
    BRAID_ASSIGN(ExprPtr inner, signed_value(false));
    value = make_expr(minus ? Expr::Kind::kNegate : Expr::Kind::kPlus, line, std::move(inner));
  } else {
    BRAID_ASSIGN(value, primary(false));
  }
  BRAID_ASSIGN(value, postfix(std::move(value)));
  return with_filters ? behind_value(std::move(value)) : Result<ExprPtr>(std::move(value));
}

Result<ExprPtr> ExpressionParser::primary(bool with_namespace) {
  const Token& token = tokens_.current();
  if (token.kind == Token::Kind::kName) return name(with_namespace);
  if (token.kind == Token::Kind::kText) return text();
  if (token.kind == Token::Kind::kNumber) {
    ExprPtr out = make_expr(Expr::Kind::kConstant, token.line);
    out->value = tokens_.next().number;
    return out;
  }
  if (token.is_operator("[")) return list();
  if (token.is_operator("{")) return dict();
  if (!tokens_.skip_operator("(")) return tokens_.unexpected("an expression");
  BRAID_ASSIGN(ExprPtr out, tuple({nullptr, true}));
  BRAID_TRY(tokens_.expect_operator(")"));
  return out;
}

Result<ExprPtr> ExpressionParser::name(bool with_namespace) {
  const Token& token = tokens_.next();
  ExprPtr out = make_expr(Expr::Kind::kConstant, token.line);
  const std::string& text = token.text;
  if (text == "true" || text == "True" || text == "false" || text == "False") {
    out->value = Value(text == "true" || text == "True");
    return out;
  }
  if (text == "none" || text == "None") return out;
  out->name = text;
  out->kind = Expr::Kind::kName;
  if (with_namespace && tokens_.skip_operator(".")) {
    BRAID_ASSIGN(std::string attribute, tokens_.identifier());
    out->kind = Expr::Kind::kNamespaceTarget;
    out->value = Value(std::move(attribute));
  }
  for (MacroCode* macro : macros) {
    macro->uses_varargs = macro->uses_varargs || text == "varargs";
    macro->uses_kwargs = macro->uses_kwargs || text == "kwargs";
    macro->uses_caller = macro->uses_caller || text == "caller";
  }
  return out;
}

// Texts in a row are one.
Result<ExprPtr> ExpressionParser::text() {
  ExprPtr out = make_expr(Expr::Kind::kConstant, tokens_.line());
  std::string joined;
  while (tokens_.current().kind == Token::Kind::kText) joined += tokens_.next().text;
  out->value = Value(std::move(joined));
  return out;
}

Result<ExprPtr> ExpressionParser::list() {
  ExprPtr out = make_expr(Expr::Kind::kList, tokens_.next().line);
  while (!tokens_.current().is_operator("]")) {
    if (!out->parts.empty()) BRAID_TRY(tokens_.expect_operator(","));
    if (tokens_.current().is_operator("]")) break;
    BRAID_ASSIGN(ExprPtr item, expression());
    out->parts.push_back(std::move(item));
  }
  tokens_.next();
  return out;
}

Result<ExprPtr> ExpressionParser::dict() {
  ExprPtr out = make_expr(Expr::Kind::kDict, tokens_.next().line);
  while (!tokens_.current().is_operator("}")) {
    if (!out->parts.empty()) BRAID_TRY(tokens_.expect_operator(","));
    if (tokens_.current().is_operator("}")) break;
    BRAID_ASSIGN(ExprPtr key, expression());
    BRAID_TRY(tokens_.expect_operator(":"));
    BRAID_ASSIGN(ExprPtr value, expression());
    out->parts.push_back(std::move(key));
    out->parts.push_back(std::move(value));
  }
  tokens_.next();
  return out;
}

bool ExpressionParser::at_tuple_end(const char* name) const {
  const Token& token = tokens_.current();
  return token.kind == Token::Kind::kVariableEnd || token.kind == Token::Kind::kBlockEnd ||
         token.is_operator(")") || (name != nullptr && token.is_name(name));
}

Result<ExprPtr> ExpressionParser::tuple(TupleEnd end) {
  const DepthGuard guard(&depth_);
  BRAID_TRY(deeper());
  const bool in_brackets = tokens_.previous().is_operator("(");
  std::vector<ExprPtr> parts;
  bool is_tuple = false;
  while (!at_tuple_end(end.name)) {
    Result<ExprPtr> part = end.conditions ? expression() : disjunction();
    BRAID_TRY(part.status());
    parts.push_back(std::move(*part));
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  return finish_tuple(std::move(parts), is_tuple, in_brackets);
}

Result<ExprPtr> ExpressionParser::finish_tuple(std::vector<ExprPtr> parts, bool is_tuple,
                                               bool may_be_empty) {
  if (!is_tuple && !parts.empty()) return std::move(parts[0]);
  if (parts.empty() && !may_be_empty) return tokens_.unexpected("an expression");
  ExprPtr out = make_expr(Expr::Kind::kTuple, tokens_.line());
  out->parts = std::move(parts);
  return out;
}

Result<ExprPtr> ExpressionParser::simple_tuple(const char* end_name, bool with_namespace) {
  std::vector<ExprPtr> parts;
  bool is_tuple = false;
  while (!at_tuple_end(end_name)) {
    BRAID_ASSIGN(ExprPtr part, primary(with_namespace));
    parts.push_back(std::move(part));
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  return finish_tuple(std::move(parts), is_tuple, false);
}

Result<ExprPtr> ExpressionParser::target(const char* end_name, bool with_namespace) {
  BRAID_ASSIGN(ExprPtr out, simple_tuple(end_name, with_namespace));
  const auto assignable = [](const Expr& expr) {
    return expr.kind == Expr::Kind::kName || expr.kind == Expr::Kind::kNamespaceTarget;
  };
  const auto fits = [&](const auto& self, const Expr& expr) -> bool {
    if (expr.kind != Expr::Kind::kTuple) return assignable(expr);
    return std::all_of(expr.parts.begin(), expr.parts.end(),
                       [&](const ExprPtr& part) { return self(self, *part); });
  };
  if (!fits(fits, *out)) return tokens_.fail("only a name can be set");
  return out;
}

Result<std::string> ExpressionParser::target_name() {
  BRAID_ASSIGN(std::string name, tokens_.identifier());
  for (const char* constant : {"true", "false", "none", "True", "False", "None"})
    if (name == constant) return tokens_.fail(cat(name, " cannot be set"));
  return name;
}

}  // namespace braid::jinja
