// Expressions.
#include <algorithm>

#include "base/text.h"
#include "jinja/access.h"
#include "jinja/builtins.h"
#include "jinja/compare.h"
#include "jinja/constants.h"
#include "jinja/evaluator.h"
#include "jinja/print.h"

namespace braid::jinja {

Result<Value> Evaluator::look_up(const std::string& name) {
  if (const Value* found = scope_->find(name)) return *found;
  if (std::optional<Value> found = find_global(name, now_)) return *found;
  return Value::undefined(cat("'", name, "' is undefined"));
}

Result<Value> Evaluator::evaluate(const Expr& expr) {
  if (expr.kind == Expr::Kind::kConstant) return expr.value;
  BRAID_TRY(budget_.spend(1));
  if (expr.kind == Expr::Kind::kName) return look_up(expr.name);
  if (expr.folds)
    if (const std::optional<Value> value = folded(expr); value && is_plain(*value)) return *value;
  BRAID_TRY(budget_.enter());
  Result<Value> value = evaluate_inner(expr);
  budget_.leave();
  if (value.ok()) BRAID_TRY(budget_.check_value_depth(value->depth()));
  return value;
}

// What an expression of constants is before the run. Nothing when it is left to the run, and within
// one that is being folded.
std::optional<Value> Evaluator::folded(const Expr& expr) {
  if (!expr.folds || folding_) return std::nullopt;
  const int depth = budget_.depth();
  folding_ = true;
  Result<Value> value = evaluate(expr);
  folding_ = false;
  budget_.leave_to(depth);
  return value.ok() ? std::optional<Value>(*value) : std::nullopt;
}

Result<Value> Evaluator::evaluate_inner(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kTuple:
    case Expr::Kind::kList:
      return evaluate_sequence(expr);
    case Expr::Kind::kDict:
      return evaluate_dict(expr);
    case Expr::Kind::kAttribute: {
      BRAID_ASSIGN(const Value object, evaluate(*expr.parts[0]));
      return get_attribute(object, expr.name);
    }
    case Expr::Kind::kItem:
      return evaluate_item(expr);
    case Expr::Kind::kSlice:
      return evaluate_slice(expr);
    case Expr::Kind::kCall:
      return evaluate_call(expr, nullptr);
    case Expr::Kind::kFilter:
    case Expr::Kind::kTest:
      return evaluate_builtin(expr);
    case Expr::Kind::kNot: {
      BRAID_ASSIGN(const Value value, evaluate(*expr.parts[0]));
      return Value(!value.truth());
    }
    case Expr::Kind::kNegate:
    case Expr::Kind::kPlus: {
      BRAID_ASSIGN(const Value value, evaluate(*expr.parts[0]));
      return expr.kind == Expr::Kind::kNegate ? negate(value) : plus(value);
    }
    case Expr::Kind::kCondition:
      return evaluate_condition(expr);
    case Expr::Kind::kCompare:
      return evaluate_compare(expr);
    case Expr::Kind::kConcat:
      return evaluate_concat(expr);
    default:
      return evaluate_binary(expr);
  }
}

Result<Value> Evaluator::evaluate_sequence(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& part : expr.parts) {
    BRAID_ASSIGN(Value value, evaluate(*part));
    items.push_back(std::move(value));
  }
  return expr.kind == Expr::Kind::kTuple ? Value::tuple(std::move(items))
                                         : Value::list(std::move(items));
}

Result<Value> Evaluator::evaluate_dict(const Expr& expr) {
  const auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    BRAID_ASSIGN(Value key, evaluate(*expr.parts[i]));
    BRAID_ASSIGN(Value value, evaluate(*expr.parts[i + 1]));
    if (!is_hashable(key))
      return invalid_input(cat("a ", key.type_name(), " cannot be a key of a dictionary"));
    dict->set(std::move(key), std::move(value));
  }
  return Value(std::shared_ptr<const Dict>(dict));
}

Result<Value> Evaluator::evaluate_item(const Expr& expr) {
  BRAID_ASSIGN(const Value object, evaluate(*expr.parts[0]));
  BRAID_ASSIGN(const Value key, evaluate(*expr.parts[1]));
  if (object.is_text()) BRAID_TRY(budget_.spend(1 + object.text().size() / 64));
  return get_item(object, key);
}

Result<Value> Evaluator::evaluate_slice(const Expr& expr) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    if (expr.parts[i] == nullptr) continue;
    BRAID_ASSIGN(parts[i], evaluate(*expr.parts[i]));
  }
  if (parts[0].is_text()) BRAID_TRY(budget_.spend_text(parts[0].text().size()));
  if (parts[0].is_sequence()) BRAID_TRY(budget_.spend(parts[0].items().size()));
  Result<Value> slice = get_slice(parts[0], parts[1], parts[2], parts[3]);
  const bool no_step = parts[3].is_integral() && parts[3].integer() == 0;
  if (folding_ && !slice.ok() && !parts[0].is_undefined() && !no_step)
    return Value::undefined(slice.status().message());
  return slice;
}

Result<Value> Evaluator::evaluate_condition(const Expr& expr) {
  BRAID_ASSIGN(const Value test, evaluate(*expr.parts[1]));
  if (test.truth()) return evaluate(*expr.parts[0]);
  if (expr.parts[2] != nullptr) return evaluate(*expr.parts[2]);
  if (folding_) return invalid_input("left to the run");
  return Value::undefined(
      cat("the if-expression on line ", expr.line, " was false and has no else"));
}

Result<bool> Evaluator::compare(Comparison comparison, const Value& a, const Value& b) {
  switch (comparison) {
    case Comparison::kEqual:
      return equal(a, b, budget_);
    case Comparison::kNotEqual: {
      BRAID_ASSIGN(const bool same, equal(a, b, budget_));
      return !same;
    }
    case Comparison::kLess:
      return less(a, b, budget_);
    case Comparison::kGreater:
      return less(b, a, budget_);
    case Comparison::kLessEqual:
    case Comparison::kGreaterEqual: {
      const bool swap = comparison == Comparison::kGreaterEqual;
      BRAID_ASSIGN(const bool before, less(swap ? b : a, swap ? a : b, budget_));
      return before ? Result<bool>(true) : equal(a, b, budget_);
    }
    case Comparison::kIn:
      return contains(b, a, budget_);
    case Comparison::kNotIn: {
      BRAID_ASSIGN(const bool found, contains(b, a, budget_));
      return !found;
    }
  }
  return false;
}

Result<Value> Evaluator::evaluate_compare(const Expr& expr) {
  BRAID_ASSIGN(Value left, evaluate(*expr.parts[0]));
  for (size_t i = 0; i < expr.comparisons.size(); ++i) {
    BRAID_ASSIGN(Value right, evaluate(*expr.parts[i + 1]));
    BRAID_ASSIGN(const bool holds, compare(expr.comparisons[i], left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Evaluator::evaluate_concat(const Expr& expr) {
  std::string out;
  for (const ExprPtr& part : expr.parts) {
    BRAID_ASSIGN(const Value value, evaluate(*part));
    BRAID_ASSIGN(const std::string text, to_text(value, budget_));
    BRAID_TRY(budget_.grow(out.size(), text.size()));
    out += text;
  }
  return Value(std::move(out));
}

Result<Value> Evaluator::evaluate_binary(const Expr& expr) {
  BRAID_ASSIGN(Value left, evaluate(*expr.parts[0]));
  if (expr.kind == Expr::Kind::kAnd && !left.truth()) return left;
  if (expr.kind == Expr::Kind::kOr && left.truth()) return left;
  BRAID_ASSIGN(Value right, evaluate(*expr.parts[1]));
  return expr.kind == Expr::Kind::kBinary ? apply(expr.op, left, right, budget_) : right;
}

Result<Arguments> Evaluator::evaluate_arguments(const CallArguments& arguments) {
  Arguments out;
  for (const ExprPtr& expr : arguments.positional) {
    BRAID_ASSIGN(Value value, evaluate(*expr));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : arguments.named) {
    BRAID_ASSIGN(Value value, evaluate(*expr));
    out.named.emplace_back(name, std::move(value));
  }
  if (arguments.rest != nullptr) {
    BRAID_ASSIGN(const Value rest, evaluate(*arguments.rest));
    BRAID_ASSIGN(const std::vector<Value> items, iterate(rest, budget_));
    out.positional.insert(out.positional.end(), items.begin(), items.end());
  }
  if (arguments.named_rest != nullptr) {
    BRAID_ASSIGN(const Value rest, evaluate(*arguments.named_rest));
    if (!rest.is_dict()) return invalid_input("the argument after ** must be a dictionary");
    for (const auto& [name, value] : rest.dict().items()) {
      if (!name.is_text()) return invalid_input("the keys of an argument after ** must be texts");
      for (const auto& [other, given] : out.named)
        if (other == name.text())
          return invalid_input(cat("the argument '", other, "' is given twice"));
      out.named.emplace_back(name.text(), value);
    }
  }
  return out;
}

Result<Value> Evaluator::evaluate_call(const Expr& expr, const Value* caller) {
  BRAID_ASSIGN(const Value callee, evaluate(*expr.parts[0]));
  BRAID_ASSIGN(Arguments arguments, evaluate_arguments(expr.arguments));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  BRAID_TRY(check_defined(callee));
  if (!callee.is_object() || !callee.object().callable())
    return invalid_input(cat("'", callee.type_name(), "' object is not callable"));
  BRAID_ASSIGN(Value value, callee.object().call(budget_, std::move(arguments)));
  keep_namespace(value);
  return value;
}

void Evaluator::keep_namespace(const Value& value) {
  if (value.as<Namespace>() != nullptr) namespaces_.push_back(value.object().shared_from_this());
}

Result<Value> Evaluator::evaluate_builtin(const Expr& expr) {
  const bool is_filter = expr.kind == Expr::Kind::kFilter;
  Value subject;
  if (expr.parts.empty())
    subject = *block_value_;
  else {
    BRAID_ASSIGN(subject, evaluate(*expr.parts[0]));
  }
  if (expr.builtin == nullptr)
    return invalid_input(cat("there is no ", is_filter ? "filter" : "test", " '", expr.name, "'"));
  BRAID_ASSIGN(Arguments arguments, evaluate_arguments(expr.arguments));
  if (subject.is_text()) BRAID_TRY(budget_.spend(subject.text().size() / 64));
  arguments.positional.insert(arguments.positional.begin(), std::move(subject));
  return expr.builtin(budget_, arguments)
      .at(cat(is_filter ? "filter '" : "test '", expr.name, "'"));
}

}  // namespace braid::jinja
