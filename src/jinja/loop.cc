#include "jinja/loop.h"

#include "base/text.h"
#include "jinja/arguments.h"
#include "jinja/compare.h"

namespace braid::jinja {

Loop::Loop(const Place& place, std::vector<Value> items)
    : place_(place), items_(std::move(items)), filtered_(place.statement->values[1] != nullptr) {
  for (const Value& item : items_) hold(item);
}

Result<std::optional<Value>> Loop::fetch() {
  while (next_ < items_.size()) {
    const Value& item = items_[next_++];
    if (!filtered_) return std::optional<Value>(item);
    BRAID_ASSIGN(const bool passes,
                 place_.evaluator->loop_test(*place_.statement, place_.around, item));
    if (passes) return std::optional<Value>(item);
  }
  return std::optional<Value>();
}

const std::optional<Value>& Loop::peek() {
  if (has_peeked_) return after_;
  has_peeked_ = true;
  Result<std::optional<Value>> next = fetch();
  if (next.ok())
    after_ = std::move(*next);
  else
    failure_ = next.status();
  return after_;
}

Result<bool> Loop::advance() {
  peek();
  BRAID_TRY(failure_);
  has_peeked_ = false;
  if (!after_) return false;
  before_ = std::move(current_);
  current_ = std::move(after_);
  after_.reset();
  ++index_;
  return true;
}

int64_t Loop::count() {
  if (count_) return *count_;
  if (!filtered_) {
    count_ = static_cast<int64_t>(items_.size());
    return *count_;
  }
  std::vector<Value> rest;
  while (true) {
    Result<std::optional<Value>> item = fetch();
    if (!item.ok()) failure_ = item.status();
    if (!item.ok() || !*item) break;
    rest.push_back(std::move(**item));
  }
  count_ = static_cast<int64_t>(rest.size()) + index_ + 1 + (after_ ? 1 : 0);
  items_ = std::move(rest);
  next_ = 0;
  filtered_ = false;
  return *count_;
}

std::optional<size_t> Loop::length() const {
  return static_cast<size_t>(const_cast<Loop*>(this)->count());
}

Result<std::string> Loop::repr(Budget& /*budget*/) const {
  return cat("<LoopContext ", index_ + 1, "/", *length(), ">");
}

std::optional<Value> Loop::position(const std::string& name) {
  if (name == "index0") return Value(index_);
  if (name == "index") return Value(index_ + 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(!peek().has_value());
  if (name == "length") return Value(count());
  if (name == "revindex") return Value(count() - index_);
  if (name == "revindex0") return Value(count() - index_ - 1);
  if (name == "depth") return Value(place_.depth + 1);
  if (name == "depth0") return Value(place_.depth);
  return std::nullopt;
}

Value Loop::method(const char* name, Method::Body body) {
  return make_object<Method>(name, Value(shared_from_this()), body);
}

std::optional<Value> Loop::attribute(const std::string& name) {
  if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *peek() : Value::undefined("there is no next item");
  if (name == "cycle") return method("cycle", &Loop::cycle);
  if (name == "changed") return method("changed", &Loop::changed);
  return position(name);
}

Result<Value> Loop::cycle(Budget& /*budget*/, Arguments& arguments) {
  const auto& loop = *arguments.positional[0].as<Loop>();
  const size_t count = arguments.positional.size() - 1;
  if (count == 0) return invalid_input("no items for cycling given");
  return arguments.positional[1 + static_cast<size_t>(loop.index_) % count];
}

Result<Value> Loop::changed(Budget& budget, Arguments& arguments) {
  auto& loop = *arguments.positional[0].as<Loop>();
  const Value now = Value::tuple({arguments.positional.begin() + 1, arguments.positional.end()});
  if (loop.last_changed_) {
    BRAID_ASSIGN(const bool same, equal(*loop.last_changed_, now, budget));
    if (same) return Value(false);
  }
  loop.last_changed_ = now;
  return Value(true);
}

Result<Value> Loop::call(Budget& /*budget*/, Arguments arguments) {
  BRAID_ASSIGN(const Bound bound, Bound::bind("loop", arguments, {"iterable"}, 1));
  if (!place_.statement->recursive)
    return invalid_input("the loop needs the mark 'recursive' to be called: {% for … recursive %}");
  return place_.evaluator->run_recursive(*place_.statement, place_.around, bound.at(0),
                                         place_.depth + 1);
}

}  // namespace braid::jinja
