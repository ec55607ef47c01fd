// Built-in generated tasks, so that a run needs no download. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace braid::inline data {

// JSON lines of a built-in task by name, with prompt, label, chosen and rejected: a pure function
// of (name, count, seed). "sort_digits": prompt "sort 3142=", label "1234". "reverse": prompt
// "reverse abc=", label "cba". "sum_digits": prompt "sum 352=", label "10".
Result<std::string> task_text(const std::string& name, int64_t count, uint64_t seed);

// The same of a source "task:NAME" (4096 lines) or "task:NAME:COUNT".
Result<std::string> task_source_text(const std::string& source, uint64_t seed);

}  // namespace braid::inline data
