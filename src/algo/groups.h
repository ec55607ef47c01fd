// Which compute functions look at several samples of a group. Pure function.
#pragma once

#include <string>

#include "config/algorithm_options.h"

namespace braid {

// Whether a compute function (find_compute() of algo/algorithm.h) needs at least two samples of
// each group.
bool compares_groups(const std::string& compute, const AlgorithmOptions& options);

}  // namespace braid
