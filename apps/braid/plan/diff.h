// The action of `braid plan diff`.
#pragma once

#include <string>

#include "base/status.h"

namespace braid {

// Prints one line per difference of two plan files (YAML or JSON). Errors: a file that cannot be
// read, a plan that is malformed.
Status run_plan_diff(const std::string& a, const std::string& b);

}  // namespace braid
