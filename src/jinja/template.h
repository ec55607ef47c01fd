// Chat templates as Hugging Face's transformers runs them: Jinja in an immutable sandbox with
// trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes, raise_exception,
// strftime_now and {% generation %}. No file and no clock is read: the time comes from the caller.
// A Template is immutable, cheap to copy and may be rendered by several threads at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "jinja/budget.h"
#include "jinja/value.h"

namespace braid::jinja {

struct Program;

// Bytes begin to end (not included) of a rendered text.
struct Span {
  size_t begin = 0, end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

struct Rendering {
  std::string text;
  std::vector<Span> generated;  // what stands between {% generation %} and {% endgeneration %}
  // False when a generation block ran inside of a macro or another captured text, so that its place
  // is not known.
  bool spans_known = true;
};

struct RenderOptions {
  // The present time in a format of strftime, which strftime_now gives; an error without one.
  std::function<std::string(const std::string& format)> now;
  Limits limits;
};

class Template {
 public:
  // Parses a template; errors begin with its name and the line.
  static Result<Template> parse(std::string name, std::string_view source);

  // The text for these variables. Errors say template, line and tag; what jinja2 refuses is
  // refused.
  Result<Rendering> render(const Dict& variables, const RenderOptions& options) const;

  const std::string& name() const { return name_; }
  // With line ends as \n.
  const std::string& source() const { return *source_; }
  bool has_generation() const;

 private:
  Template() = default;
  std::string name_;
  std::shared_ptr<const std::string> source_;
  std::shared_ptr<const Program> program_;
};

// JSON as a value of a template, keys in their order. Errors: nested too deeply, or an integer
// beyond 64 bits.
Result<Value> from_json(const OrderedJson& json);

}  // namespace braid::jinja
