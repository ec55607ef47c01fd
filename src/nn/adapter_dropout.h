// Dropout before LoRA adapters. Which numbers are left out is a function of (seed, key of the row,
// module, column), and a key tells sample and position: so it does not depend on how samples are
// partitioned over ranks and micro-batches or matrices are cut, and a layer that is computed again
// leaves out the same. Values; thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/model.h"

namespace braid::inline nn {

struct AdapterDropout {
  double share = 0;                  // of the numbers that are left out, in [0, 1)
  std::vector<uint64_t> token_keys;  // one per row of the batch
};

// The keys of a batch without a cache.
AdapterDropout adapter_dropout(const TokenBatch& batch, double share, uint64_t seed);

// x [T, in] with zeros where numbers are left out, the rest times 1 / (1 - share), as PEFT does.
// Where ranks share the columns, x begins with column `first_column` of the whole.
at::Tensor drop_numbers(const AdapterDropout& dropout, const std::string& module,
                        int64_t first_column, const at::Tensor& x_TI);

}  // namespace braid::inline nn
