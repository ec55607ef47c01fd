// A macro as a value, and the block of a {% call %}. Not shared between threads.
#pragma once

#include "jinja/evaluator.h"

namespace braid::jinja {

class Macro : public Object {
 public:
  Macro(Evaluator* evaluator, const MacroCode* code, Scope* defined_in)
      : evaluator_(evaluator), code_(code), defined_in_(defined_in) {}

  const char* type_name() const override { return "Macro"; }
  Result<std::string> repr(Budget& /*budget*/) const override {
    return code_->name.empty() ? std::string("<Macro anonymous>")
                               : cat("<Macro '", code_->name, "'>");
  }
  std::optional<Value> attribute(const std::string& name) override;
  bool callable() const override { return true; }
  Result<Value> call(Budget& /*budget*/, Arguments arguments) override {
    return evaluator_->call_macro(*code_, defined_in_, std::move(arguments));
  }

 private:
  Evaluator* evaluator_;
  const MacroCode* code_;
  Scope* defined_in_;
};

}  // namespace braid::jinja
