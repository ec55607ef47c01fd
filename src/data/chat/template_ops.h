// The canonical form of a chat template's Jinja program: what two programs have in common that
// differ only in spelling. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace braid {

struct TemplateOp {
  enum class Kind {
    kText,       // a text that is written as it is
    kValue,      // an expression whose value is written
    kStatement,  // for, if, set, … with its expression
  };
  Kind kind;
  std::string text;

  friend bool operator==(const TemplateOp&, const TemplateOp&) = default;
};

// Reads a program as transformers does (blocks trimmed and left-stripped). Equal in the result:
// quotes, blanks, a['b'] and a.b, + and ~ and neighbouring outputs, .strip() and | trim, names of
// loop and set variables, loop.index0 == 0 and loop.first; a default for add_generation_prompt and
// comments vanish. Fails on text that is no Jinja.
Result<std::vector<TemplateOp>> canonical_template(std::string_view jinja);

}  // namespace braid
