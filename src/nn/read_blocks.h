// What was read of files of weights, in blocks that have a hash each: for who compares it with what
// other ranks have read. A tensor is cut where tensor parallelism over 2, 4 or 8 ranks cuts it
// (along the dimension that it cuts), so that slices which overlap have blocks in common. Not
// thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nn/index_range.h"

namespace braid::inline nn {

// By "FILE, tensor NAME[0:64, 0:32]", of a file its name without the folder, the hash of a block
// (nn/tensor_digest.h).
using ReadBlocks = std::map<std::string, std::string>;

// What is read: rows of a stored tensor, and of these some columns (of a vector one).
struct StoredSlice {
  std::string path, tensor;
  std::vector<int64_t> shape;  // of the tensor, as stored
  int64_t dim = 0;             // along which other ranks may have it cut
  IndexRange rows, columns;
};

// Adds its blocks. REQUIRES: `values` are those of the slice.
void note_read(const StoredSlice& slice, const at::Tensor& values, ReadBlocks* blocks);

}  // namespace braid::inline nn
