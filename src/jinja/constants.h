// Which expressions jinja2 evaluates before a template runs. It matters where the rules differ: in
// an expression of constants, a slice of something that cannot be sliced is undefined; elsewhere it
// is an error.
#pragma once

#include "jinja/syntax.h"

namespace braid::jinja {

// Sets Expr::folds throughout: of expressions of constants alone that hold a slice.
void mark_constants(Body* body);

// Whether jinja2 keeps such a value in place of the expression.
bool is_plain(const Value& value);

}  // namespace braid::jinja
