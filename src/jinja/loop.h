// The variable `loop` of a for loop. Not shared between threads.
#pragma once

#include <optional>
#include <vector>

#include "jinja/evaluator.h"

namespace braid::jinja {

class Loop : public Object {
 public:
  // Where the loop stands in the template.
  struct Place {
    Evaluator* evaluator = nullptr;
    const Stmt* statement = nullptr;
    Scope* around = nullptr;
    int depth = 0;  // of a recursive loop, from 0
  };
  Loop(const Place& place, std::vector<Value> items);

  // To the next item; false at the end. A condition is asked only now, since the body may have
  // changed what it asks for.
  Result<bool> advance();
  const Value& current() const { return *current_; }

  const char* type_name() const override { return "LoopContext"; }
  Result<std::string> repr(Budget& budget) const override;
  std::optional<Value> attribute(const std::string& name) override;
  bool callable() const override { return true; }
  Result<Value> call(Budget& budget, Arguments arguments) override;
  std::optional<size_t> length() const override;

 private:
  Result<std::optional<Value>> fetch();
  // The item behind the current one, nothing at the end; an error shows at the next advance().
  const std::optional<Value>& peek();
  int64_t count();
  std::optional<Value> position(const std::string& name);
  static Result<Value> cycle(Budget& budget, Arguments& arguments);
  static Result<Value> changed(Budget& budget, Arguments& arguments);
  Value method(const char* name, Method::Body body);

  Place place_;
  std::vector<Value> items_;
  size_t next_ = 0;
  bool filtered_;
  std::optional<Value> before_, current_, after_;
  bool has_peeked_ = false;
  int64_t index_ = -1;  // from 0
  std::optional<int64_t> count_;
  std::optional<Value> last_changed_;
  Status failure_;
};

}  // namespace braid::jinja
