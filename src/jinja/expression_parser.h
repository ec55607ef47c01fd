// Parses the expressions of a template. Belongs to one parse.
#pragma once

#include <vector>

#include "jinja/syntax.h"
#include "jinja/token_stream.h"

namespace braid::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  // What ends a list of values without brackets, beside the end of the tag.
  struct TupleEnd {
    const char* name = nullptr;
    bool conditions = true;  // "a if b else c" is allowed inside
  };

  Result<ExprPtr> expression();
  Result<ExprPtr> tuple(TupleEnd end);
  Result<ExprPtr> tuple() { return tuple(TupleEnd()); }
  // A name, a tuple of names or, where it may be one, an attribute of a namespace.
  Result<ExprPtr> target(const char* end_name, bool with_namespace);
  Result<std::string> target_name();
  // "name(arguments) | name …" of a filter block or behind the name of a set block; null when there
  // is none. started: the first name follows without a bar.
  Result<ExprPtr> filters(ExprPtr value, bool started);

  // Marks in every macro that is being read which of the special names it uses.
  std::vector<MacroCode*> macros;
  // Blocks of conditions around the current place: an unknown filter or test inside of one is an
  // error only when it is reached. The errors of the others:
  int conditions = 0;
  std::vector<std::string> unknown;

 private:
  using Rule = Result<ExprPtr> (ExpressionParser::*)();

  Result<ExprPtr> condition();
  Result<ExprPtr> disjunction();
  Result<ExprPtr> conjunction();
  Result<ExprPtr> negation();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concatenation();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> unary() { return signed_value(true); }
  Result<ExprPtr> signed_value(bool with_filters);
  Result<ExprPtr> primary(bool with_namespace);
  Result<ExprPtr> name(bool with_namespace);
  Result<ExprPtr> text();
  Result<ExprPtr> list();
  Result<ExprPtr> dict();
  Result<ExprPtr> postfix(ExprPtr value);
  Result<ExprPtr> behind_value(ExprPtr value);
  Result<ExprPtr> subscript(ExprPtr value);
  Result<ExprPtr> brackets(ExprPtr value, int line);
  Result<ExprPtr> slice_part();
  Result<ExprPtr> call(ExprPtr value);
  Status call_arguments(CallArguments* out);
  Status call_argument(CallArguments* out);
  Result<ExprPtr> filter(ExprPtr value);
  Result<ExprPtr> test(ExprPtr value);
  Status test_arguments(CallArguments* out);
  Result<std::string> dotted_name();
  Result<ExprPtr> simple_tuple(const char* end_name, bool with_namespace);
  Result<ExprPtr> finish_tuple(std::vector<ExprPtr> parts, bool is_tuple, bool may_be_empty);
  bool at_tuple_end(const char* name) const;
  Result<ExprPtr> chain(Rule operand, const std::vector<std::pair<const char*, Operator>>& ops);
  Status deeper();
  void note_unknown(const char* what, const Expr& expr);

  TokenStream& tokens_;
  int depth_ = 0;
};

ExprPtr make_expr(Expr::Kind kind, int line);
ExprPtr make_expr(Expr::Kind kind, int line, ExprPtr part);

}  // namespace braid::jinja
