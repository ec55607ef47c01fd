// The values of a template: those of Python that a template can make or be given. A Value is cheap
// to copy; texts, lists and dictionaries are shared and never change once they are made (the
// sandbox of chat templates forbids it), objects may have state. Not shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace braid::jinja {

class Budget;
class Dict;
class Object;
class Value;

// Positional and named arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A list or, as a tuple, what (a, b) makes.
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;  // of nesting; a list of numbers has 1
};

class Value {
 public:
  enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kText, kList, kDict, kObject };

  Value() : data_(None{}) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int value) : data_(int64_t{value}) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string value)
      : data_(Text{std::make_shared<const std::string>(std::move(value)), false}) {}
  explicit Value(std::string_view value) : Value(std::string(value)) {}
  explicit Value(const char* value) : Value(std::string(value)) {}
  explicit Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<Object> value) : data_(std::move(value)) {}

  // A text that counts as escaped already (Markup): whatever is added to it gets escaped.
  static Value safe(std::string text);
  static Value of_size(size_t size) { return Value(static_cast<int64_t>(size)); }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  // `why` is the error of whatever cannot be done with an undefined value.
  static Value undefined(std::string why);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_integral() const { return is_int() || is_bool(); }  // as Python's isinstance(x, int)
  bool is_number() const { return is_integral() || is_float(); }
  bool is_text() const { return kind() == Kind::kText; }
  bool is_sequence() const { return kind() == Kind::kList; }
  bool is_tuple() const { return is_sequence() && sequence().is_tuple; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }

  // REQUIRES: the kind.
  const std::string& why() const { return *std::get<Undefined>(data_).why; }
  int64_t integer() const { return is_bool() ? std::get<bool>(data_) : std::get<int64_t>(data_); }
  double number() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
  }
  const std::string& text() const { return *std::get<Text>(data_).text; }
  bool is_safe() const { return is_text() && std::get<Text>(data_).safe; }
  const List& sequence() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const std::vector<Value>& items() const { return sequence().items; }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const std::shared_ptr<const Dict>& dict_ptr() const {
    return std::get<std::shared_ptr<const Dict>>(data_);
  }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  // The object, when it is of this class.
  template <typename T>
  T* as() const {
    return is_object() ? dynamic_cast<T*>(&object()) : nullptr;
  }

  // Python's name of the type, as in its error messages.
  std::string type_name() const;
  // Python's truth: empty, zero, None and undefined are false.
  bool truth() const;
  // Of nesting; 0 for a value that holds no others.
  int depth() const;
  // Python's `is`.
  bool same_as(const Value& other) const;

 private:
  struct None {};
  struct Undefined {
    std::shared_ptr<const std::string> why;
  };
  struct Text {
    std::shared_ptr<const std::string> text;
    bool safe = false;
  };
  // In the order of Kind.
  std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

// Keys in the order in which they were set; 1, 1.0 and true are one key.
class Dict {
 public:
  using Item = std::pair<Value, Value>;

  // REQUIRES for keys: is_hashable.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);

  const std::vector<Item>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  int depth() const { return depth_; }

 private:
  static constexpr size_t kIndexed = 16;  // smaller ones are searched from the front
  std::optional<size_t> position(const Value& key) const;

  std::vector<Item> items_;
  std::unordered_multimap<size_t, size_t> index_;  // hash of key -> place in items_
  int depth_ = 1;
};

// Everything else: functions, macros, generators, namespaces, ranges. The defaults are those of a
// Python object without the ability.
class Object : public std::enable_shared_from_this<Object> {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  virtual const char* type_name() const = 0;
  virtual Result<std::string> repr(Budget& budget) const = 0;
  virtual bool callable() const { return false; }
  virtual Result<Value> call(Budget& budget, Arguments arguments);
  virtual std::optional<Value> attribute(const std::string& name);
  virtual bool iterable() const { return false; }
  // The items; a generator is empty afterwards. REQUIRES: iterable().
  virtual Result<std::vector<Value>> iterate(Budget& budget);
  virtual std::optional<size_t> length() const { return std::nullopt; }
  // obj[key]; nothing when there is no such item.
  virtual std::optional<Value> item(const Value& key) const;
  virtual bool subscriptable() const { return false; }
  virtual bool mapping() const { return false; }
  int depth() const { return depth_; }

 protected:
  // The object holds this value.
  void hold(const Value& value);

 private:
  int depth_ = 1;
};

// Hash of a value that is_hashable; equal values have equal ones.
size_t hash_of(const Value& value);
// False for lists, dictionaries and tuples with such items.
bool is_hashable(const Value& value);

// The items that a loop visits: of lists and generators, keys of a dictionary, characters of a
// text.
Result<std::vector<Value>> iterate(const Value& value, Budget& budget);
bool is_iterable(const Value& value);
// Python's len(); nothing for a value without one.
std::optional<size_t> length_of(const Value& value);

}  // namespace braid::jinja
