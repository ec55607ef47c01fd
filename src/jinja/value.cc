#include "jinja/value.h"

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "base/utf8.h"
#include "jinja/budget.h"
#include "jinja/compare.h"
#include "jinja/text.h"

namespace braid::jinja {
namespace {

std::shared_ptr<const List> make_sequence(std::vector<Value> items, bool is_tuple) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return std::make_shared<const List>(List{std::move(items), is_tuple, depth + 1});
}

}  // namespace

Value Value::safe(std::string text) {
  Value out;
  out.data_ = Text{std::make_shared<const std::string>(std::move(text)), true};
  return out;
}

Value Value::list(std::vector<Value> items) {
  Value out;
  out.data_ = make_sequence(std::move(items), false);
  return out;
}

Value Value::tuple(std::vector<Value> items) {
  Value out;
  out.data_ = make_sequence(std::move(items), true);
  return out;
}

Value Value::undefined(std::string why) {
  Value out;
  out.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return out;
}

std::string Value::type_name() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return "str";
    case Kind::kList:
      return is_tuple() ? "tuple" : "list";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return object().type_name();
  }
  return "";
}

bool Value::truth() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number() != 0;
    default:
      return length_of(*this).value_or(1) != 0;
  }
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_dict()) return dict().depth();
  return is_object() ? object().depth() : 0;
}

bool Value::same_as(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
      return std::get<Undefined>(data_).why == std::get<Undefined>(other.data_).why;
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return integer() == other.integer();
    case Kind::kFloat:
      return number() == other.number();
    case Kind::kText:
      return text() == other.text();
    case Kind::kList:
      return &sequence() == &other.sequence() ||
             (is_tuple() && other.is_tuple() && items().empty() && other.items().empty());
    case Kind::kDict:
      return &dict() == &other.dict();
    case Kind::kObject:
      return &object() == &other.object();
  }
  return false;
}

std::optional<size_t> Dict::position(const Value& key) const {
  if (items_.size() <= kIndexed) {
    for (size_t i = 0; i < items_.size(); ++i)
      if (equal_scalars(items_[i].first, key)) return i;
    return std::nullopt;
  }
  const auto [begin, end] = index_.equal_range(hash_of(key));
  for (auto at = begin; at != end; ++at)
    if (equal_scalars(items_[at->second].first, key)) return at->second;
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  const std::optional<size_t> found = position(key);
  return found ? &items_[*found].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (items_.size() > kIndexed) return find(Value(key));
  for (const Item& item : items_)
    if (item.first.is_text() && item.first.text() == key) return &item.second;
  return nullptr;
}

void Dict::set(Value key, Value value) {
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  if (const std::optional<size_t> found = position(key)) {
    items_[*found].second = std::move(value);
    return;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() <= kIndexed) return;
  for (size_t i = index_.size(); i < items_.size(); ++i)
    index_.emplace(hash_of(items_[i].first), i);
}

Result<Value> Object::call(Budget& /*budget*/, Arguments /*arguments*/) {
  return invalid_input(cat("'", type_name(), "' object is not callable"));
}

std::optional<Value> Object::attribute(const std::string& /*name*/) { return std::nullopt; }

Result<std::vector<Value>> Object::iterate(Budget& /*budget*/) {
  return invalid_input(cat("'", type_name(), "' object is not iterable"));
}

std::optional<Value> Object::item(const Value& /*key*/) const { return std::nullopt; }

void Object::hold(const Value& value) { depth_ = std::max(depth_, value.depth() + 1); }

size_t hash_of(const Value& value) {
  if (value.is_number()) return std::hash<double>()(value.number());
  if (value.is_text()) return std::hash<std::string>()(value.text());
  if (value.is_object()) return std::hash<const Object*>()(&value.object());
  size_t hash = static_cast<size_t>(value.kind());
  if (value.is_sequence())
    for (const Value& item : value.items()) hash = hash * 1000003 ^ hash_of(item);
  return hash;
}

bool is_hashable(const Value& value) {
  if (value.is_dict() || (value.is_sequence() && !value.is_tuple())) return false;
  return !value.is_tuple() || std::all_of(value.items().begin(), value.items().end(), is_hashable);
}

Result<std::vector<Value>> iterate(const Value& value, Budget& budget) {
  std::vector<Value> out;
  if (value.is_object() && value.object().iterable()) return value.object().iterate(budget);
  if (!is_iterable(value))
    return invalid_input(cat("'", value.type_name(), "' object is not iterable"));
  BRAID_TRY(budget.spend(length_of(value).value_or(0)));
  if (value.is_sequence()) return value.items();
  if (value.is_dict())
    for (const Dict::Item& item : value.dict().items()) out.push_back(item.first);
  if (value.is_text()) {
    const std::string& text = value.text();
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      next_code_point(text, &at);
      out.emplace_back(text.substr(begin, at - begin));
    }
  }
  return out;
}

bool is_iterable(const Value& value) {
  if (value.is_object()) return value.object().iterable();
  return value.is_text() || value.is_sequence() || value.is_dict() || value.is_undefined();
}

std::optional<size_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return 0;
    case Value::Kind::kText:
      return count_code_points(value.text());
    case Value::Kind::kList:
      return value.items().size();
    case Value::Kind::kDict:
      return value.dict().size();
    case Value::Kind::kObject:
      return value.object().length();
    default:
      return std::nullopt;
  }
}

}  // namespace braid::jinja
