// The objects of Python that templates meet: generators, views of dictionaries, ranges, functions,
// bound methods, namespaces and the helpers of Jinja. Not shared between threads.
#pragma once

#include <functional>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

// What a filter such as map gives: its items can be visited once. They are made at once, but an
// error among them shows only when they are visited.
class Generator : public Object {
 public:
  explicit Generator(std::vector<Value> items, Status failure = ok_status());

  const char* type_name() const override { return "generator"; }
  Result<std::string> repr(Budget& budget) const override;
  bool iterable() const override { return true; }
  Result<std::vector<Value>> iterate(Budget& budget) override;
  // Takes one item; nothing at the end.
  Result<std::optional<Value>> next();

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
  Status failure_;  // behind the last item
};

// dict.keys(), dict.values() or dict.items().
class DictView : public Object {
 public:
  enum class Part { kKeys, kValues, kItems };
  DictView(std::shared_ptr<const Dict> dict, Part part);

  const char* type_name() const override;
  Result<std::string> repr(Budget& budget) const override;
  bool iterable() const override { return true; }
  Result<std::vector<Value>> iterate(Budget& budget) override;
  std::optional<size_t> length() const override { return dict_->size(); }
  bool has_keys() const { return part_ == Part::kKeys; }
  const Dict& dict() const { return *dict_; }

 private:
  std::shared_ptr<const Dict> dict_;
  Part part_;
};

// range(begin, end, step) with at most kMost items.
class Range : public Object {
 public:
  static constexpr int64_t kMost = 100'000;  // MAX_RANGE of Jinja's sandbox
  static Result<Value> make(int64_t begin, int64_t end, int64_t step);
  Range(int64_t begin, int64_t end, int64_t step, int64_t count)
      : begin_(begin), end_(end), step_(step), count_(count) {}

  const char* type_name() const override { return "range"; }
  Result<std::string> repr(Budget& budget) const override;
  bool iterable() const override { return true; }
  Result<std::vector<Value>> iterate(Budget& budget) override;
  std::optional<size_t> length() const override { return static_cast<size_t>(count_); }
  std::optional<Value> item(const Value& key) const override;
  bool subscriptable() const override { return true; }
  bool same_items(const Range& other) const;
  // The range of the items at places begin, begin + step … before `end`.
  Result<Value> slice(int64_t begin, int64_t end, int64_t step) const;

 private:
  int64_t begin_, end_, step_, count_;
};

// A function of the environment, such as range.
class Function : public Object {
 public:
  using Body = std::function<Result<Value>(Budget&, Arguments)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}

  const char* type_name() const override { return "function"; }
  Result<std::string> repr(Budget& budget) const override;
  bool callable() const override { return true; }
  Result<Value> call(Budget& budget, Arguments arguments) override;

 protected:
  std::string name_;
  Body body_;
};

// The function dict, which has a method of its own.
class DictFunction : public Function {
 public:
  DictFunction();
  std::optional<Value> attribute(const std::string& name) override;
};

// A method of a value, such as text.strip; the body gets the value as the first argument.
class Method : public Object {
 public:
  using Body = Result<Value> (*)(Budget&, Arguments&);
  Method(const char* name, Value self, Body body);

  const char* type_name() const override { return "builtin_function_or_method"; }
  Result<std::string> repr(Budget& budget) const override;
  bool callable() const override { return true; }
  Result<Value> call(Budget& budget, Arguments arguments) override;

 private:
  const char* name_;
  Value self_;
  Body body_;
};

// namespace(a=1): the one thing that a template may change. The evaluator owns them and empties
// them at its end, since one may hold itself.
class Namespace : public Object {
 public:
  const char* type_name() const override { return "Namespace"; }
  Result<std::string> repr(Budget& budget) const override;
  std::optional<Value> attribute(const std::string& name) override;
  void set(const std::string& name, Value value) { attributes_.set(Value(name), std::move(value)); }
  void clear() { attributes_ = Dict(); }
  // An error for a name that begins with an underscore, which transformers forbids.
  static Status check_name(const std::string& name);

 private:
  Dict attributes_;
};

// cycler(a, b): its next() gives one after another.
class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items);
  const char* type_name() const override { return "Cycler"; }
  Result<std::string> repr(Budget& budget) const override;
  std::optional<Value> attribute(const std::string& name) override;

 private:
  static Result<Value> next(Budget& budget, Arguments& arguments);
  static Result<Value> reset(Budget& budget, Arguments& arguments);
  std::vector<Value> items_;
  size_t position_ = 0;
};

// joiner(", "): "" when called first, then the separator.
class Joiner : public Object {
 public:
  explicit Joiner(std::string separator) : separator_(std::move(separator)) {}
  const char* type_name() const override { return "Joiner"; }
  Result<std::string> repr(Budget& budget) const override;
  bool callable() const override { return true; }
  Result<Value> call(Budget& budget, Arguments arguments) override;

 private:
  std::string separator_;
  bool used_ = false;
};

// What groupby gives: a tuple whose two items have names.
class Group : public Object {
 public:
  Group(Value grouper, Value list);
  const char* type_name() const override { return "_GroupTuple"; }
  Result<std::string> repr(Budget& budget) const override;
  std::optional<Value> attribute(const std::string& name) override;
  bool iterable() const override { return true; }
  Result<std::vector<Value>> iterate(Budget& budget) override;
  std::optional<size_t> length() const override { return 2; }
  std::optional<Value> item(const Value& key) const override;
  bool subscriptable() const override { return true; }

 private:
  Value pair_;
};

template <typename T, typename... Args>
Value make_object(Args&&... args) {
  return Value(std::shared_ptr<Object>(std::make_shared<T>(std::forward<Args>(args)...)));
}

}  // namespace braid::jinja
