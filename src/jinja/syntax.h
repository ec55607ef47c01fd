// The syntax tree of a template. Built once, then immutable and shared between threads.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/arithmetic.h"
#include "jinja/builtins.h"
#include "jinja/value.h"

namespace braid::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr rest;        // *rest
  ExprPtr named_rest;  // **rest
};

enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expr {
  enum class Kind {
    kConstant,
    kName,       // name
    kTuple,      // parts
    kList,       // parts
    kDict,       // parts: key, value, key, value …
    kAttribute,  // parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // parts[0][parts[1]:parts[2]:parts[3]], null for what is not written
    kCall,       // parts[0](arguments)
    kFilter,     // parts[0] | name(arguments); parts is empty where a block gives the value
    kTest,       // parts[0] is name(arguments)
    kNot,
    kNegate,
    kPlus,
    kAnd,
    kOr,
    kCondition,        // parts[0] if parts[1] else parts[2] (null)
    kCompare,          // parts[0] comparisons[0] parts[1] comparisons[1] …
    kBinary,           // parts[0] op parts[1]
    kConcat,           // parts[0] ~ parts[1] ~ …
    kNamespaceTarget,  // name.value, on the left of a set
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  std::string name;
  Value value;
  std::vector<ExprPtr> parts;
  CallArguments arguments;
  std::vector<Comparison> comparisons;
  Operator op = Operator::kAdd;
  Builtin builtin = nullptr;  // of a filter or a test; null for an unknown one
  bool folds = false;         // evaluated before the run (constants.h)
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

// A macro, or the block that a {% call %} hands over.
struct MacroCode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Stmt {
  enum class Kind {
    kData,         // text
    kOutput,       // values
    kSet,          // targets[0] = values[0]
    kSetBlock,     // targets[0] = body, through the filter values[0] if any
    kFor,          // for targets[0] in values[0] if values[1] (null)
    kIf,           // values[i] → bodies[i], otherwise
    kMacro,        // macro
    kCallBlock,    // values[0] is called with the macro
    kFilterBlock,  // body through values[0]
    kWith,         // targets[i] = values[i]
    kScope,        // body: block, autoescape
    kGeneration,   // body, written by the assistant
    kBreak,
    kContinue,
    kUnavailable,  // text says what
  };
  Kind kind = Kind::kData;
  int line = 0;
  size_t begin = 0, end = 0;  // bytes of the tag in the source
  std::string text;
  std::vector<ExprPtr> targets;
  std::vector<ExprPtr> values;
  std::vector<Body> bodies;
  Body otherwise;
  bool recursive = false;
  std::unique_ptr<MacroCode> macro;

  const Body& body() const { return bodies[0]; }
};

}  // namespace braid::jinja
