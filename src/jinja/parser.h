// A template's source as a syntax tree. Pure function.
#pragma once

#include <string_view>

#include "jinja/syntax.h"

namespace braid::jinja {

struct Program {
  Body body;
  bool has_generation = false;  // {% generation %} marks what the assistant says
};

// Parses a normalized source. Errors begin with "line N: " and say what is wrong there.
Result<Program> parse_program(std::string_view source);

}  // namespace braid::jinja
