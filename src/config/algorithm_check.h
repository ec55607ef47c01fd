// The check of the options of algorithms. Pure.
#pragma once

#include "base/status.h"
#include "config/algorithm_options.h"

namespace braid::inline config {

// Rejects unknown choices, numbers out of range and combinations that would be ignored; the error
// names the key and what it allows.
Status validate(const AlgorithmOptions& options);

}  // namespace braid::inline config
