#include "jinja/constants.h"

#include <algorithm>

#include "jinja/objects.h"

namespace braid::jinja {
namespace {

struct Found {
  bool constant = true;
  bool slice = false;
};

Found mark(Expr* expr);

void add(Expr* part, Found* all) {
  if (part == nullptr) return;
  const Found found = mark(part);
  all->constant = all->constant && found.constant;
  all->slice = all->slice || found.slice;
}

// Filters that get the variables of the template, so that nothing is known before.
bool sees_variables(const std::string& filter) {
  constexpr const char* kNames[] = {"map",        "random", "reject",
                                    "rejectattr", "select", "selectattr"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* name) { return filter == name; });
}

Found mark(Expr* expr) {
  Found all;
  for (const ExprPtr& part : expr->parts) add(part.get(), &all);
  for (const ExprPtr& part : expr->arguments.positional) add(part.get(), &all);
  for (const auto& [name, part] : expr->arguments.named) add(part.get(), &all);
  add(expr->arguments.rest.get(), &all);
  add(expr->arguments.named_rest.get(), &all);
  using Kind = Expr::Kind;
  all.slice = all.slice || expr->kind == Kind::kSlice;
  if (expr->kind == Kind::kName || expr->kind == Kind::kCall ||
      expr->kind == Kind::kNamespaceTarget)
    all.constant = false;
  if (expr->kind == Kind::kFilter || expr->kind == Kind::kTest)
    all.constant = all.constant && !expr->parts.empty() && expr->builtin != nullptr &&
                   !(expr->kind == Kind::kFilter && sees_variables(expr->name));
  expr->folds = all.constant && all.slice;
  return all;
}

void mark_all(std::vector<ExprPtr>* expressions) {
  Found unused;
  for (const ExprPtr& expr : *expressions) add(expr.get(), &unused);
}

}  // namespace

void mark_constants(Body* body) {
  for (const auto& statement : *body) {
    mark_all(&statement->values);
    for (Body& inner : statement->bodies) mark_constants(&inner);
    mark_constants(&statement->otherwise);
    if (statement->macro == nullptr) continue;
    mark_all(&statement->macro->defaults);
    mark_constants(&statement->macro->body);
  }
}

bool is_plain(const Value& value) {
  if (value.is_undefined()) return false;
  if (value.is_object()) return value.as<Range>() != nullptr;
  if (value.is_sequence()) return std::all_of(value.items().begin(), value.items().end(), is_plain);
  return !value.is_dict() || std::all_of(value.dict().items().begin(), value.dict().items().end(),
                                         [](const auto& item) {
                                           return is_plain(item.first) && is_plain(item.second);
                                         });
}

}  // namespace braid::jinja
