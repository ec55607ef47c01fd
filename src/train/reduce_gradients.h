// Gradients of data-parallel ranks become one. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace braid {

// Sums the gradients of the parameters over the group, in f32 and in buckets of some megabytes. A
// parameter without a gradient here counts as zeros: a rank without samples takes part like others.
// All ranks then have the same bits.
Status sum_gradients(const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                     Communicator& group);

}  // namespace braid
