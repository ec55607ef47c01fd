// Runs a template's program once. Used by Template alone; belongs to one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jinja/parser.h"
#include "jinja/template.h"

namespace braid::jinja {

// Variables of a block. A name is looked up in the block and then in those around it.
struct Scope {
  Scope* parent = nullptr;
  bool kept = false;  // something that may outlive the block refers to it
  std::vector<std::pair<std::string, Value>> names;

  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
};

class Evaluator {
 public:
  Evaluator(const Program& program, const std::string& source, const RenderOptions& options)
      : program_(program), source_(source), now_(options.now), budget_(options.limits) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  ~Evaluator();

  Result<Rendering> run(const Dict& variables);

  // Called by the objects that a template makes.
  Result<Value> call_macro(const MacroCode& code, Scope* defined_in, Arguments arguments);
  // One more loop over these items with the body of a recursive one; gives the text.
  Result<Value> run_recursive(const Stmt& loop, Scope* around, const Value& items, int depth);
  // Whether the item of a loop passes its condition.
  Result<bool> loop_test(const Stmt& loop, Scope* around, const Value& item);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Inner;  // a block's scope, as long as the block runs

  // Statements.
  Result<Flow> run_body(const Body& body);
  Result<Flow> run_scoped(const Body& body);
  Result<Flow> run_statement(const Stmt& statement);
  Result<Flow> run_inner(const Stmt& statement);
  Result<Flow> run_if(const Stmt& statement);
  Result<Flow> run_with(const Stmt& statement);
  Result<Flow> run_loop(const Stmt& statement, const Value& items, int depth);
  Status run_output(const Stmt& statement);
  Status run_set(const Stmt& statement);
  Result<Flow> run_set_block(const Stmt& statement);
  Status run_call_block(const Stmt& statement);
  Result<Flow> run_filter_block(const Stmt& statement);
  Status run_generation(const Stmt& statement);
  Result<Flow> capture_block(const Stmt& statement, Value* text);
  Result<std::string> capture(const Body& body, Flow* flow);
  Status write(const std::string& text);
  Status assign(const Expr& target, const Value& value);
  Status assign_tuple(const Expr& target, const Value& value);
  Status bind_parameters(const MacroCode& code, Arguments& arguments);
  Status bind_special(const MacroCode& code, Arguments& arguments);
  Status located(const Stmt& statement, Status status);
  Value make_macro(const MacroCode& code);
  void keep_scopes();

  // Expressions.
  Result<Value> evaluate(const Expr& expr);
  std::optional<Value> folded(const Expr& expr);
  Result<Value> evaluate_inner(const Expr& expr);
  Result<Value> evaluate_sequence(const Expr& expr);
  Result<Value> evaluate_dict(const Expr& expr);
  Result<Value> evaluate_slice(const Expr& expr);
  Result<Value> evaluate_item(const Expr& expr);
  Result<Value> evaluate_condition(const Expr& expr);
  Result<Value> evaluate_compare(const Expr& expr);
  Result<Value> evaluate_concat(const Expr& expr);
  Result<Value> evaluate_binary(const Expr& expr);
  Result<Value> evaluate_call(const Expr& expr, const Value* caller);
  Result<Value> evaluate_builtin(const Expr& expr);
  Result<Arguments> evaluate_arguments(const CallArguments& arguments);
  Result<bool> compare(Comparison comparison, const Value& a, const Value& b);
  Result<Value> look_up(const std::string& name);
  void keep_namespace(const Value& value);

  const Program& program_;
  const std::string& source_;
  const TimeWriter& now_;
  Budget budget_;
  Scope* scope_ = nullptr;
  std::vector<std::unique_ptr<Scope>> kept_;  // of blocks that ended
  std::vector<std::shared_ptr<Object>> namespaces_;
  std::string output_;
  std::string* out_ = &output_;
  const Value* block_value_ = nullptr;  // what a filter block filters
  std::vector<Span> generated_;
  bool spans_known_ = true;
  bool folding_ = false;  // an expression of constants is evaluated as before the run
  bool located_ = false;  // the error on its way has its place
};

}  // namespace braid::jinja
