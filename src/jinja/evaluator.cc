// Statements.
#include "jinja/evaluator.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/compare.h"
#include "jinja/loop.h"
#include "jinja/macro.h"
#include "jinja/print.h"
#include "jinja/text.h"

namespace braid::jinja {

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent)
    for (const auto& [key, value] : scope->names)
      if (key == name) return &value;
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [key, old] : names)
    if (key == name) {
      old = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

class Evaluator::Inner {
 public:
  explicit Inner(Evaluator& evaluator) : Inner(evaluator, evaluator.scope_) {}
  Inner(Evaluator& evaluator, Scope* parent)
      : evaluator_(evaluator), before_(evaluator.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    evaluator.scope_ = scope_.get();
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  ~Inner() {
    evaluator_.scope_ = before_;
    if (scope_->kept) evaluator_.kept_.push_back(std::move(scope_));
  }

 private:
  Evaluator& evaluator_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

std::optional<Value> Macro::attribute(const std::string& name) {
  if (name == "name") return Value(code_->name);
  if (name == "catch_kwargs") return Value(code_->uses_kwargs);
  if (name == "catch_varargs") return Value(code_->uses_varargs);
  if (name == "caller") return Value(code_->uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const std::string& parameter : code_->parameters) names.emplace_back(parameter);
  return Value::tuple(std::move(names));
}

Evaluator::~Evaluator() {
  for (const auto& object : namespaces_) static_cast<Namespace&>(*object).clear();
}

Result<Rendering> Evaluator::run(const Dict& variables) {
  Scope root;
  for (const auto& [name, value] : variables.items()) root.names.emplace_back(name.text(), value);
  scope_ = &root;
  BRAID_TRY(run_body(program_.body).status());
  return Rendering{std::move(output_), std::move(generated_), spans_known_};
}

Status Evaluator::located(const Stmt& statement, Status status) {
  if (status.ok() || std::exchange(located_, true)) return status;
  constexpr size_t kMost = 80;
  std::string tag = source_.substr(statement.begin, statement.end - statement.begin);
  std::replace(tag.begin(), tag.end(), '\n', ' ');
  if (count_code_points(tag) > kMost) tag = tag.substr(0, byte_offset(tag, kMost)) + " …";
  return status.at(cat("line ", statement.line, ", ", tag));
}

Result<Evaluator::Flow> Evaluator::run_body(const Body& body) {
  for (const auto& statement : body) {
    BRAID_ASSIGN(const Flow flow, run_statement(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::run_scoped(const Body& body) {
  const Inner inner(*this);
  return run_body(body);
}

Result<Evaluator::Flow> Evaluator::run_statement(const Stmt& statement) {
  BRAID_TRY(located(statement, budget_.spend(1)));
  BRAID_TRY(located(statement, budget_.enter()));
  Result<Flow> flow = run_inner(statement);
  budget_.leave();
  if (!flow.ok()) return located(statement, flow.status());
  return flow;
}

Result<Evaluator::Flow> Evaluator::run_inner(const Stmt& statement) {
  Status status;
  switch (statement.kind) {
    case Stmt::Kind::kData:
      status = write(statement.text);
      break;
    case Stmt::Kind::kOutput:
      status = run_output(statement);
      break;
    case Stmt::Kind::kSet:
      status = run_set(statement);
      break;
    case Stmt::Kind::kSetBlock:
      return run_set_block(statement);
    case Stmt::Kind::kMacro:
      scope_->set(statement.macro->name, make_macro(*statement.macro));
      break;
    case Stmt::Kind::kCallBlock:
      status = run_call_block(statement);
      break;
    case Stmt::Kind::kFilterBlock:
      return run_filter_block(statement);
    case Stmt::Kind::kGeneration:
      status = run_generation(statement);
      break;
    case Stmt::Kind::kFor: {
      BRAID_ASSIGN(const Value items, evaluate(*statement.values[0]));
      return run_loop(statement, items, 0);
    }
    case Stmt::Kind::kIf:
      return run_if(statement);
    case Stmt::Kind::kWith:
      return run_with(statement);
    case Stmt::Kind::kScope:
      return run_scoped(statement.body());
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
    case Stmt::Kind::kUnavailable:
      return invalid_input(
          cat("{% ", statement.text, " %} wants another template; a chat template stands alone"));
  }
  BRAID_TRY(status);
  return Flow::kNext;
}

Status Evaluator::write(const std::string& text) {
  BRAID_TRY(budget_.grow(out_->size(), text.size()));
  *out_ += text;
  return ok_status();
}

Status Evaluator::run_output(const Stmt& statement) {
  for (const ExprPtr& expr : statement.values) {
    Value value;
    if (const std::optional<Value> known = folded(*expr))
      value = *known;
    else {
      BRAID_ASSIGN(value, evaluate(*expr));
    }
    if (value.is_text()) {
      BRAID_TRY(write(value.text()));
      continue;
    }
    BRAID_ASSIGN(const std::string text, to_text(value, budget_));
    BRAID_TRY(write(text));
  }
  return ok_status();
}

Result<std::string> Evaluator::capture(const Body& body, Flow* flow) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  Result<Flow> ended = run_body(body);
  out_ = outer;
  BRAID_TRY(ended.status());
  *flow = *ended;
  return text;
}

Result<Evaluator::Flow> Evaluator::capture_block(const Stmt& statement, Value* text) {
  const Inner inner(*this);
  Flow flow = Flow::kNext;
  BRAID_ASSIGN(std::string captured, capture(statement.body(), &flow));
  *text = Value(std::move(captured));
  return flow;
}

Status Evaluator::assign(const Expr& target, const Value& value) {
  if (target.kind == Expr::Kind::kTuple) return assign_tuple(target, value);
  if (target.kind == Expr::Kind::kName) {
    scope_->set(target.name, value);
    return ok_status();
  }
  BRAID_ASSIGN(const Value object, look_up(target.name));
  auto* const space = object.as<Namespace>();
  if (space == nullptr)
    return invalid_input(cat("'", target.name, ".", target.value.text(), "' cannot be set: '",
                             target.name, "' is no namespace()"));
  BRAID_TRY(Namespace::check_name(target.value.text()));
  space->set(target.value.text(), value);
  return ok_status();
}

Status Evaluator::assign_tuple(const Expr& target, const Value& value) {
  BRAID_ASSIGN(const std::vector<Value> items, iterate(value, budget_));
  if (items.size() != target.parts.size())
    return invalid_input(
        cat(items.size(), " values cannot be set to ", target.parts.size(), " names"));
  for (size_t i = 0; i < items.size(); ++i) BRAID_TRY(assign(*target.parts[i], items[i]));
  return ok_status();
}

Status Evaluator::run_set(const Stmt& statement) {
  BRAID_ASSIGN(const Value value, evaluate(*statement.values[0]));
  return assign(*statement.targets[0], value);
}

// A break or continue inside of a block leaves it, and what it wrote is lost.
Result<Evaluator::Flow> Evaluator::run_set_block(const Stmt& statement) {
  Value value;
  BRAID_ASSIGN(const Flow flow, capture_block(statement, &value));
  if (flow != Flow::kNext) return flow;
  if (statement.values[0] != nullptr) {
    const Value* const outer = std::exchange(block_value_, &value);
    BRAID_ASSIGN(value, evaluate(*statement.values[0]));
    block_value_ = outer;
  }
  BRAID_TRY(assign(*statement.targets[0], value));
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::run_filter_block(const Stmt& statement) {
  Value value;
  BRAID_ASSIGN(const Flow flow, capture_block(statement, &value));
  if (flow != Flow::kNext) return flow;
  const Value* const outer = std::exchange(block_value_, &value);
  BRAID_ASSIGN(const Value filtered, evaluate(*statement.values[0]));
  block_value_ = outer;
  if (!filtered.is_text())
    return invalid_input(
        cat("the filter of a block must give a text, not a ", filtered.type_name()));
  BRAID_TRY(write(filtered.text()));
  return Flow::kNext;
}

Status Evaluator::run_generation(const Stmt& statement) {
  const size_t begin = out_->size();
  BRAID_TRY(run_scoped(statement.body()).status());
  if (out_ == &output_)
    generated_.push_back({begin, out_->size()});
  else
    spans_known_ = false;
  return ok_status();
}

Result<Evaluator::Flow> Evaluator::run_if(const Stmt& statement) {
  for (size_t i = 0; i < statement.values.size(); ++i) {
    BRAID_ASSIGN(const Value test, evaluate(*statement.values[i]));
    if (test.truth()) return run_body(statement.bodies[i]);
  }
  return run_body(statement.otherwise);
}

Result<Evaluator::Flow> Evaluator::run_with(const Stmt& statement) {
  std::vector<Value> values;
  for (const ExprPtr& expr : statement.values) {
    BRAID_ASSIGN(Value value, evaluate(*expr));
    values.push_back(std::move(value));
  }
  const Inner inner(*this);
  for (size_t i = 0; i < values.size(); ++i) BRAID_TRY(assign(*statement.targets[i], values[i]));
  return run_body(statement.body());
}

Result<bool> Evaluator::loop_test(const Stmt& loop, Scope* around, const Value& item) {
  const Inner inner(*this, around);
  BRAID_TRY(assign(*loop.targets[0], item));
  BRAID_ASSIGN(const Value value, evaluate(*loop.values[1]));
  return value.truth();
}

Result<Evaluator::Flow> Evaluator::run_loop(const Stmt& statement, const Value& items, int depth) {
  if (statement.recursive || statement.values[1] != nullptr) keep_scopes();
  BRAID_ASSIGN(std::vector<Value> all, iterate(items, budget_));
  const auto loop =
      std::make_shared<Loop>(Loop::Place{this, &statement, scope_, depth}, std::move(all));
  const Value loop_value{std::shared_ptr<Object>(loop)};
  bool finished =
      false;  // a pass reached the body's end; by jinja2's measure else runs if none did
  while (true) {
    BRAID_ASSIGN(const bool more, loop->advance());
    if (!more) break;
    const Inner inner(*this);
    scope_->set("loop", loop_value);
    BRAID_TRY(assign(*statement.targets[0], loop->current()));
    BRAID_ASSIGN(const Flow flow, run_body(statement.body()));
    if (flow == Flow::kBreak) break;
    finished = finished || flow == Flow::kNext;
  }
  return finished ? Result<Flow>(Flow::kNext) : run_scoped(statement.otherwise);
}

Result<Value> Evaluator::run_recursive(const Stmt& loop, Scope* around, const Value& items,
                                       int depth) {
  BRAID_TRY(budget_.enter());
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  Scope* const before = std::exchange(scope_, around);
  Result<Flow> flow = run_loop(loop, items, depth);
  scope_ = before;
  out_ = outer;
  budget_.leave();
  BRAID_TRY(flow.status());
  return Value(std::move(text));
}

// Macros refer to the scopes in which they are defined, and may be kept in a namespace.
void Evaluator::keep_scopes() {
  for (Scope* scope = scope_; scope != nullptr && !scope->kept; scope = scope->parent)
    scope->kept = true;
}

Value Evaluator::make_macro(const MacroCode& code) {
  keep_scopes();
  return make_object<Macro>(this, &code, scope_);
}

Status Evaluator::run_call_block(const Stmt& statement) {
  const Value caller = make_macro(*statement.macro);
  BRAID_ASSIGN(const Value value, evaluate_call(*statement.values[0], &caller));
  BRAID_ASSIGN(const std::string text, to_text(value, budget_));
  return write(text);
}

Result<Value> Evaluator::call_macro(const MacroCode& code, Scope* defined_in, Arguments arguments) {
  BRAID_TRY(budget_.enter());
  const Inner inner(*this, defined_in);
  BRAID_TRY(bind_parameters(code, arguments));
  BRAID_TRY(bind_special(code, arguments));
  const Value* const outer = std::exchange(block_value_, nullptr);
  Flow flow = Flow::kNext;
  BRAID_ASSIGN(std::string text, capture(code.body, &flow));
  block_value_ = outer;
  budget_.leave();
  return Value(std::move(text));
}

// Takes the arguments that have a parameter of their own.
Status Evaluator::bind_parameters(const MacroCode& code, Arguments& arguments) {
  const size_t count = code.parameters.size();
  auto& given = arguments.positional;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = code.parameters[i];
    if (i < given.size()) {
      scope_->set(name, given[i]);
      continue;
    }
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& named) { return named.first == name; });
    if (found != arguments.named.end()) {
      scope_->set(name, std::move(found->second));
      arguments.named.erase(found);
    } else if (const size_t without = count - code.defaults.size(); i >= without) {
      BRAID_ASSIGN(Value value, evaluate(*code.defaults[i - without]));
      scope_->set(name, std::move(value));
    } else {
      scope_->set(name, Value::undefined(cat("parameter '", name, "' was not provided")));
    }
  }
  given.erase(given.begin(), given.begin() + static_cast<ptrdiff_t>(std::min(count, given.size())));
  return ok_status();
}

// What is left over goes to caller, varargs and kwargs where the macro uses them.
Status Evaluator::bind_special(const MacroCode& code, Arguments& arguments) {
  const auto has_parameter = [&](const char* name) {
    return std::count(code.parameters.begin(), code.parameters.end(), name) != 0;
  };
  if (code.uses_caller && !has_parameter("caller")) {
    Value caller = Value::undefined("No caller defined");
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [](const auto& named) { return named.first == "caller"; });
    if (found != arguments.named.end()) {
      if (!found->second.is_none()) caller = std::move(found->second);
      arguments.named.erase(found);
    }
    scope_->set("caller", std::move(caller));
  }
  if (code.uses_kwargs && !has_parameter("kwargs")) {
    const auto rest = std::make_shared<Dict>();
    for (auto& [name, value] : arguments.named) rest->set(Value(name), std::move(value));
    scope_->set("kwargs", Value(std::shared_ptr<const Dict>(rest)));
  } else if (!arguments.named.empty()) {
    return invalid_input(
        cat("macro '", code.name, "' takes no keyword argument '", arguments.named[0].first, "'"));
  }
  if (code.uses_varargs && !has_parameter("varargs")) {
    scope_->set("varargs", Value::tuple(std::move(arguments.positional)));
  } else if (!arguments.positional.empty()) {
    return invalid_input(
        cat("macro '", code.name, "' takes not more than ", code.parameters.size(), " arguments"));
  }
  return ok_status();
}

}  // namespace braid::jinja
