#include "jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "jinja/constants.h"
#include "jinja/expression_parser.h"

namespace braid::jinja {
namespace {

constexpr int kMostBlocks = 100;  // in each other

using StmtPtr = std::unique_ptr<Stmt>;

class StatementParser {
 public:
  explicit StatementParser(TokenStream& tokens) : tokens_(tokens), expressions_(tokens) {}

  Result<Program> run() {
    BRAID_ASSIGN(program_.body, body({}));
    if (!expressions_.unknown.empty()) return invalid_input(expressions_.unknown[0]);
    mark_constants(&program_.body);
    return std::move(program_);
  }

 private:
  using EndNames = std::initializer_list<const char*>;

  // Statements up to one of these tags, whose name becomes current; {}: to the end.
  Result<Body> body(EndNames ends) {
    Body out;
    if (++depth_ > kMostBlocks) return tokens_.fail("blocks are nested too deeply");
    while (tokens_.current().kind != Token::Kind::kEnd) {
      const Token& token = tokens_.next();
      if (token.kind == Token::Kind::kBlockBegin && at_name(ends)) {
        --depth_;
        return out;
      }
      BRAID_ASSIGN(StmtPtr statement, read(token));
      if (statement != nullptr) out.push_back(std::move(statement));
    }
    if (ends.size() > 0)
      return tokens_.fail(cat("the template ends where {% ", *(ends.end() - 1), " %} is missing"));
    --depth_;
    return out;
  }

  bool at_name(EndNames names) const {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return tokens_.current().is_name(name); });
  }

  // The block behind a tag, up to one of the end tags; the last of them is read as well.
  Result<Body> block(EndNames ends) {
    tokens_.skip_operator(":");
    BRAID_TRY(tokens_.expect(Token::Kind::kBlockEnd, "'%}'"));
    return body(ends);
  }
  Result<Body> whole_block(const char* end) {
    BRAID_ASSIGN(Body out, block({end}));
    tokens_.next();
    return out;
  }

  static StmtPtr make(Stmt::Kind kind, const Token& token) {
    auto out = std::make_unique<Stmt>();
    out->kind = kind;
    out->line = token.line;
    out->begin = token.begin;
    return out;
  }

  Result<StmtPtr> read(const Token& token) {
    if (token.kind == Token::Kind::kData) {
      StmtPtr out = make(Stmt::Kind::kData, token);
      out->text = token.text;
      return out;
    }
    tag_ = token;
    if (token.kind == Token::Kind::kVariableBegin) {
      StmtPtr out = make(Stmt::Kind::kOutput, token);
      BRAID_ASSIGN(ExprPtr value, expressions_.tuple());
      BRAID_TRY(tokens_.expect(Token::Kind::kVariableEnd, "'}}'"));
      out->values.push_back(std::move(value));
      out->end = tokens_.previous().end;
      return out;
    }
    const size_t tag_end = tokens_.end_of_tag();
    BRAID_ASSIGN(StmtPtr out, statement());
    BRAID_TRY(tokens_.expect(Token::Kind::kBlockEnd, "'%}'"));
    if (out != nullptr) out->end = tag_end;
    return out;
  }

  Result<StmtPtr> statement() {
    struct Rule {
      const char* name;
      Result<StmtPtr> (StatementParser::*parse)();
    };
    static constexpr Rule kRules[] = {
        {"set", &StatementParser::set},
        {"for", &StatementParser::loop},
        {"if", &StatementParser::condition},
        {"macro", &StatementParser::macro},
        {"call", &StatementParser::call},
        {"filter", &StatementParser::filter},
        {"with", &StatementParser::with},
        {"print", &StatementParser::print},
        {"generation", &StatementParser::generation},
        {"block", &StatementParser::named_block},
        {"autoescape", &StatementParser::autoescape},
        {"break", &StatementParser::leave_loop},
        {"continue", &StatementParser::leave_loop},
        {"include", &StatementParser::unavailable},
        {"import", &StatementParser::unavailable},
        {"from", &StatementParser::unavailable},
        {"extends", &StatementParser::unavailable},
    };
    const Token& token = tokens_.current();
    if (token.kind != Token::Kind::kName) return tokens_.unexpected("the name of a tag");
    for (const Rule& rule : kRules) {
      if (token.text != rule.name) continue;
      tokens_.next();
      return (this->*rule.parse)();
    }
    return tokens_.fail(cat("unknown tag '", token.text, "'"));
  }

  Result<StmtPtr> set() {
    StmtPtr out = make(Stmt::Kind::kSet, tag_);
    BRAID_ASSIGN(ExprPtr target, expressions_.target(nullptr, true));
    out->targets.push_back(std::move(target));
    ExprPtr value;
    if (tokens_.skip_operator("=")) {
      BRAID_ASSIGN(value, expressions_.tuple());
    } else {
      out->kind = Stmt::Kind::kSetBlock;
      BRAID_ASSIGN(value, expressions_.filters(nullptr, false));
      BRAID_ASSIGN(Body inside, whole_block("endset"));
      out->bodies.push_back(std::move(inside));
    }
    out->values.push_back(std::move(value));
    return out;
  }

  Result<StmtPtr> loop() {
    StmtPtr out = make(Stmt::Kind::kFor, tag_);
    BRAID_ASSIGN(ExprPtr target, expressions_.target("in", false));
    if (names(*target, "loop")) return tokens_.fail("the variable of a loop cannot be 'loop'");
    BRAID_TRY(tokens_.expect_name("in"));
    BRAID_ASSIGN(ExprPtr items, expressions_.tuple({"recursive", false}));
    ExprPtr test;
    if (tokens_.skip_name("if")) {
      BRAID_ASSIGN(test, expressions_.expression());
    }
    out->recursive = tokens_.skip_name("recursive");
    out->targets.push_back(std::move(target));
    out->values.push_back(std::move(items));
    out->values.push_back(std::move(test));
    ++loops_;
    BRAID_ASSIGN(Body inside, block({"else", "endfor"}));
    --loops_;
    out->bodies.push_back(std::move(inside));
    if (tokens_.next().text == "else") {
      BRAID_ASSIGN(out->otherwise, whole_block("endfor"));
    }
    return out;
  }

  static bool names(const Expr& target, const char* name) {
    if (target.kind != Expr::Kind::kTuple) return target.name == name;
    return std::any_of(target.parts.begin(), target.parts.end(),
                       [&](const ExprPtr& part) { return names(*part, name); });
  }

  Result<StmtPtr> condition() {
    StmtPtr out = make(Stmt::Kind::kIf, tag_);
    ++expressions_.conditions;
    while (true) {
      BRAID_ASSIGN(ExprPtr test, expressions_.tuple({nullptr, false}));
      BRAID_ASSIGN(Body inside, block({"elif", "else", "endif"}));
      out->values.push_back(std::move(test));
      out->bodies.push_back(std::move(inside));
      const std::string name = tokens_.next().text;
      if (name == "elif") continue;
      if (name == "else") {
        BRAID_ASSIGN(out->otherwise, whole_block("endif"));
      }
      --expressions_.conditions;
      return out;
    }
  }

  Result<StmtPtr> macro() {
    StmtPtr out = make(Stmt::Kind::kMacro, tag_);
    out->macro = std::make_unique<MacroCode>();
    BRAID_ASSIGN(out->macro->name, expressions_.target_name());
    BRAID_TRY(signature(out->macro.get()));
    BRAID_TRY(macro_body(out->macro.get(), "endmacro"));
    return out;
  }

  Status signature(MacroCode* macro) {
    BRAID_TRY(tokens_.expect_operator("("));
    while (!tokens_.current().is_operator(")")) {
      if (!macro->parameters.empty()) BRAID_TRY(tokens_.expect_operator(","));
      BRAID_ASSIGN(std::string name, expressions_.target_name());
      if (std::count(macro->parameters.begin(), macro->parameters.end(), name) != 0)
        return tokens_.fail(cat("the parameter '", name, "' occurs twice"));
      macro->parameters.push_back(std::move(name));
      if (tokens_.skip_operator("=")) {
        BRAID_ASSIGN(ExprPtr value, expressions_.expression());
        macro->defaults.push_back(std::move(value));
      } else if (!macro->defaults.empty()) {
        return tokens_.fail("a parameter without a default behind one that has one");
      }
    }
    tokens_.next();
    return ok_status();
  }

  // A body that runs as a function of its own: loops around it cannot be left from inside.
  Status macro_body(MacroCode* macro, const char* end) {
    const int loops = std::exchange(loops_, 0);
    expressions_.macros.push_back(macro);
    BRAID_ASSIGN(macro->body, whole_block(end));
    expressions_.macros.pop_back();
    loops_ = loops;
    return ok_status();
  }

  Result<StmtPtr> call() {
    StmtPtr out = make(Stmt::Kind::kCallBlock, tag_);
    out->macro = std::make_unique<MacroCode>();
    if (tokens_.current().is_operator("(")) BRAID_TRY(signature(out->macro.get()));
    BRAID_ASSIGN(ExprPtr call, expressions_.expression());
    if (call->kind != Expr::Kind::kCall) return tokens_.fail("{% call %} wants a call: name(…)");
    out->values.push_back(std::move(call));
    BRAID_TRY(macro_body(out->macro.get(), "endcall"));
    return out;
  }

  Result<StmtPtr> filter() {
    StmtPtr out = make(Stmt::Kind::kFilterBlock, tag_);
    BRAID_ASSIGN(ExprPtr filter, expressions_.filters(nullptr, true));
    out->values.push_back(std::move(filter));
    BRAID_ASSIGN(Body inside, whole_block("endfilter"));
    out->bodies.push_back(std::move(inside));
    return out;
  }

  Result<StmtPtr> with() {
    StmtPtr out = make(Stmt::Kind::kWith, tag_);
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!out->targets.empty()) BRAID_TRY(tokens_.expect_operator(","));
      BRAID_ASSIGN(ExprPtr target, expressions_.target(nullptr, false));
      BRAID_TRY(tokens_.expect_operator("="));
      BRAID_ASSIGN(ExprPtr value, expressions_.expression());
      out->targets.push_back(std::move(target));
      out->values.push_back(std::move(value));
    }
    BRAID_ASSIGN(Body inside, whole_block("endwith"));
    out->bodies.push_back(std::move(inside));
    return out;
  }

  Result<StmtPtr> print() {
    StmtPtr out = make(Stmt::Kind::kOutput, tag_);
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!out->values.empty()) BRAID_TRY(tokens_.expect_operator(","));
      BRAID_ASSIGN(ExprPtr value, expressions_.expression());
      out->values.push_back(std::move(value));
    }
    return out;
  }

  Result<StmtPtr> generation() {
    StmtPtr out = make(Stmt::Kind::kGeneration, tag_);
    program_.has_generation = true;
    const int loops = std::exchange(loops_, 0);
    BRAID_ASSIGN(Body inside, whole_block("endgeneration"));
    loops_ = loops;
    out->bodies.push_back(std::move(inside));
    return out;
  }

  Result<StmtPtr> named_block() {
    StmtPtr out = make(Stmt::Kind::kScope, tag_);
    BRAID_ASSIGN(const std::string name, tokens_.identifier());
    if (std::count(blocks_.begin(), blocks_.end(), name) != 0)
      return tokens_.fail(cat("the block '", name, "' is defined twice"));
    blocks_.push_back(name);
    tokens_.skip_name("scoped");
    tokens_.skip_name("required");
    const int loops = std::exchange(loops_, 0);
    BRAID_ASSIGN(Body inside, whole_block("endblock"));
    loops_ = loops;
    out->bodies.push_back(std::move(inside));
    tokens_.skip_name(name);
    return out;
  }

  // Escaping is off in chat templates whatever this tag says of it.
  Result<StmtPtr> autoescape() {
    StmtPtr out = make(Stmt::Kind::kScope, tag_);
    BRAID_ASSIGN(const ExprPtr value, expressions_.expression());
    if (value->kind != Expr::Kind::kConstant || value->value.truth())
      return tokens_.fail("{% autoescape %} is not supported: chat templates escape nothing");
    BRAID_ASSIGN(Body inside, whole_block("endautoescape"));
    out->bodies.push_back(std::move(inside));
    return out;
  }

  Result<StmtPtr> leave_loop() {
    const bool is_break = tokens_.previous().text == "break";
    if (loops_ == 0)
      return tokens_.fail(cat("{% ", tokens_.previous().text, " %} stands outside of a loop"));
    return make(is_break ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, tag_);
  }

  // Tags that want other templates, of which there are none: an error when one is reached.
  Result<StmtPtr> unavailable() {
    StmtPtr out = make(Stmt::Kind::kUnavailable, tag_);
    out->text = tokens_.previous().text;
    while (tokens_.current().kind != Token::Kind::kBlockEnd &&
           tokens_.current().kind != Token::Kind::kEnd)
      tokens_.next();
    return out;
  }

  TokenStream& tokens_;
  ExpressionParser expressions_;
  Program program_;
  Token tag_;      // of the statement that is being read
  int depth_ = 0;  // of blocks
  int loops_ = 0;  // around the current place, in the same function
  std::vector<std::string> blocks_;
};

}  // namespace

Result<Program> parse_program(std::string_view source) {
  BRAID_ASSIGN(std::vector<Token> tokens, tokenize(source));
  TokenStream stream(std::move(tokens));
  return StatementParser(stream).run();
}

}  // namespace braid::jinja
