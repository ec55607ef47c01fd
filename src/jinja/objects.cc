#include "jinja/objects.h"

#include <algorithm>

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/markup.h"
#include "jinja/print.h"

namespace braid::jinja {
namespace {

// Python writes the address of such an object, another one in every run.
Status no_text(const std::string& what, const char* remedy) {
  return invalid_input(cat(what, " has no text of its own; ", remedy));
}

}  // namespace

Generator::Generator(std::vector<Value> items, Status failure)
    : items_(std::move(items)), failure_(std::move(failure)) {
  for (const Value& item : items_) hold(item);
}

Result<std::string> Generator::repr(Budget& /*budget*/) const {
  return no_text("a generator, which a filter such as map or select gives,",
                 "put '| list' behind the filter");
}

Result<std::vector<Value>> Generator::iterate(Budget& budget) {
  BRAID_TRY(budget.spend(items_.size() - position_));
  std::vector<Value> rest(items_.begin() + static_cast<ptrdiff_t>(position_), items_.end());
  position_ = items_.size();
  BRAID_TRY(failure_);
  return rest;
}

Result<std::optional<Value>> Generator::next() {
  if (position_ < items_.size()) return std::optional<Value>(items_[position_++]);
  BRAID_TRY(failure_);
  return std::optional<Value>();
}

DictView::DictView(std::shared_ptr<const Dict> dict, Part part)
    : dict_(std::move(dict)), part_(part) {
  hold(Value(dict_));
}

const char* DictView::type_name() const {
  if (part_ == Part::kKeys) return "dict_keys";
  return part_ == Part::kValues ? "dict_values" : "dict_items";
}

Result<std::string> DictView::repr(Budget& budget) const {
  BRAID_ASSIGN(std::vector<Value> items, const_cast<DictView*>(this)->iterate(budget));
  BRAID_ASSIGN(const std::string text, jinja::repr(Value::list(std::move(items)), budget));
  return cat(type_name(), "(", text, ")");
}

Result<std::vector<Value>> DictView::iterate(Budget& budget) {
  BRAID_TRY(budget.spend(dict_->size()));
  std::vector<Value> out;
  for (const auto& [key, value] : dict_->items()) {
    if (part_ == Part::kKeys) out.push_back(key);
    if (part_ == Part::kValues) out.push_back(value);
    if (part_ == Part::kItems) out.push_back(Value::tuple({key, value}));
  }
  return out;
}

Result<Value> Range::make(int64_t begin, int64_t end, int64_t step) {
  if (step == 0) return invalid_input("range() arg 3 must not be zero");
  __int128 count = 0;
  const __int128 span = static_cast<__int128>(end) - begin;
  if (step > 0 && span > 0) count = (span + step - 1) / step;
  if (step < 0 && span < 0) count = (-span - step - 1) / -static_cast<__int128>(step);
  if (count > kMost)
    return invalid_input(cat("a range of more than ", kMost, " items is not allowed"));
  return make_object<Range>(begin, end, step, static_cast<int64_t>(count));
}

Result<Value> Range::slice(int64_t begin, int64_t end, int64_t step) const {
  int64_t first = 0, last = 0, stride = 0;
  const bool overflow =
      __builtin_mul_overflow(begin, step_, &first) ||
      __builtin_add_overflow(first, begin_, &first) || __builtin_mul_overflow(end, step_, &last) ||
      __builtin_add_overflow(last, begin_, &last) || __builtin_mul_overflow(step, step_, &stride);
  if (overflow) return invalid_input("a number of the range does not fit into 64 bits");
  return make(first, last, stride);
}

Result<std::string> Range::repr(Budget& /*budget*/) const {
  const std::string step = step_ == 1 ? "" : cat(", ", step_);
  return cat("range(", begin_, ", ", end_, step, ")");
}

Result<std::vector<Value>> Range::iterate(Budget& budget) {
  BRAID_TRY(budget.spend(static_cast<uint64_t>(count_)));
  std::vector<Value> out;
  for (int64_t i = 0; i < count_; ++i) out.emplace_back(begin_ + i * step_);
  return out;
}

std::optional<Value> Range::item(const Value& key) const {
  if (!key.is_integral()) return std::nullopt;
  const int64_t index = key.integer() < 0 ? key.integer() + count_ : key.integer();
  if (index < 0 || index >= count_) return std::nullopt;
  return Value(begin_ + index * step_);
}

bool Range::same_items(const Range& other) const {
  if (count_ != other.count_) return false;
  return count_ == 0 || (begin_ == other.begin_ && (count_ == 1 || step_ == other.step_));
}

Result<std::string> Function::repr(Budget& /*budget*/) const {
  return no_text(cat("the function '", name_, "'"), "call it: write () behind it");
}

Result<Value> Function::call(Budget& budget, Arguments arguments) {
  return body_(budget, std::move(arguments));
}

Method::Method(const char* name, Value self, Body body)
    : name_(name), self_(std::move(self)), body_(body) {
  hold(self_);
}

Result<std::string> Method::repr(Budget& /*budget*/) const {
  return no_text(cat("the method '", name_, "'"), "call it: write () behind it");
}

Result<Value> Method::call(Budget& budget, Arguments arguments) {
  arguments.positional.insert(arguments.positional.begin(), self_);
  if (!self_.is_safe()) return body_(budget, arguments);
  BRAID_TRY(escape_arguments(name_, &arguments, budget));
  BRAID_ASSIGN(const Value made, body_(budget, arguments));
  return marked(made);
}

Result<std::string> Namespace::repr(Budget& budget) const {
  if (!budget.begin_writing(this)) return std::string("<Namespace {...}>");
  const Value attributes(std::make_shared<const Dict>(attributes_));
  const Result<std::string> text = jinja::repr(attributes, budget);
  budget.end_writing();
  BRAID_TRY(text.status());
  return cat("<Namespace ", *text, ">");
}

std::optional<Value> Namespace::attribute(const std::string& name) {
  const Value* found = attributes_.find(name);
  return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
}

Status Namespace::check_name(const std::string& name) {
  if (name.empty() || name[0] != '_') return ok_status();
  return invalid_input(
      cat("an attribute of a namespace must not begin with an underscore: ", name));
}

Cycler::Cycler(std::vector<Value> items) : items_(std::move(items)) {
  for (const Value& item : items_) hold(item);
}

Result<std::string> Cycler::repr(Budget& /*budget*/) const {
  return no_text("a cycler", "write its next()");
}

std::optional<Value> Cycler::attribute(const std::string& name) {
  if (name == "pos") return Value::of_size(position_);
  if (name == "items") return Value::tuple(items_);
  if (name == "current") return items_[position_];
  if (name == "next") return make_object<Method>("next", Value(shared_from_this()), &Cycler::next);
  if (name == "reset")
    return make_object<Method>("reset", Value(shared_from_this()), &Cycler::reset);
  return std::nullopt;
}

Result<Value> Cycler::next(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("next", arguments, {nullptr}, 1));
  auto& cycler = *bound.at(0).as<Cycler>();
  Value out = cycler.items_[cycler.position_];
  cycler.position_ = (cycler.position_ + 1) % cycler.items_.size();
  return out;
}

Result<Value> Cycler::reset(Budget& /*budget*/, Arguments& arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("reset", arguments, {nullptr}, 1));
  bound.at(0).as<Cycler>()->position_ = 0;
  return Value();
}

Result<std::string> Joiner::repr(Budget& /*budget*/) const {
  return no_text("a joiner", "call it: write () behind it");
}

Result<Value> Joiner::call(Budget& /*budget*/, Arguments arguments) {
  BRAID_TRY(Bound::bind("joiner", arguments, {}, 0).status());
  return Value(std::exchange(used_, true) ? separator_ : std::string());
}

Group::Group(Value grouper, Value list)
    : pair_(Value::tuple({std::move(grouper), std::move(list)})) {
  hold(pair_);
}

Result<std::string> Group::repr(Budget& budget) const { return jinja::repr(pair_, budget); }

std::optional<Value> Group::attribute(const std::string& name) {
  if (name == "grouper") return pair_.items()[0];
  if (name == "list") return pair_.items()[1];
  return std::nullopt;
}

Result<std::vector<Value>> Group::iterate(Budget& budget) {
  BRAID_TRY(budget.spend(2));
  return pair_.items();
}

std::optional<Value> Group::item(const Value& key) const {
  if (!key.is_integral()) return std::nullopt;
  const int64_t index = key.integer() < 0 ? key.integer() + 2 : key.integer();
  if (index < 0 || index > 1) return std::nullopt;
  return pair_.items()[static_cast<size_t>(index)];
}

}  // namespace braid::jinja
