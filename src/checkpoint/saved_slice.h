// A rectangle of a tensor of the whole model: what a rank writes to a checkpoint, and what it reads
// of one. Plain values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace braid::inline checkpoint {

struct SavedSlice {
  // A whole tensor.
  SavedSlice(std::string tensor_in, at::Tensor values_in)
      : tensor(std::move(tensor_in)),
        shape(values_in.sizes().vec()),
        offset(shape.size(), 0),
        values(std::move(values_in)) {}
  SavedSlice(std::string tensor_in, std::vector<int64_t> shape_in, std::vector<int64_t> offset_in,
             at::Tensor values_in)
      : tensor(std::move(tensor_in)),
        shape(std::move(shape_in)),
        offset(std::move(offset_in)),
        values(std::move(values_in)) {}

  std::string tensor;           // its name in the whole model
  std::vector<int64_t> shape;   // of the whole tensor
  std::vector<int64_t> offset;  // of the slice's first element
  at::Tensor values;            // its sizes are the extent
};

}  // namespace braid::inline checkpoint
