// Which matrix library multiplies by a weight of a given shape: libtorch's default, or oneDNN on
// weights in its own packed layout. Measured once per shape and machine (kernel_choice_cache.h),
// then fixed, because each library rounds in its own way; the table can be saved with a run and set
// again. Called from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "base/status.h"

namespace braid {

enum class MatrixLibrary { kDefault, kPacked };

// y = x w^T for a weight [out, in].
struct ProductShape {
  int64_t in = 0;
  int64_t out = 0;
  at::ScalarType dtype = at::kFloat;

  bool operator<(const ProductShape& other) const {
    return std::tie(in, out, dtype) < std::tie(other.in, other.out, other.dtype);
  }
};

// The library for CPU products of this shape. The first call for a shape that the cache lacks
// measures both at the batch of a decode step; the packed one is taken unless it is clearly slower,
// not there for this type and machine, or gives rows that depend on their batch.
MatrixLibrary matrix_library(const ProductShape& shape);

// The choices so far, a line "DTYPE IN OUT LIBRARY" each, in order.
std::string matrix_choices();

// Takes over saved choices for their shapes; a line that is not of that form is an error that names
// it, and a packed choice that this machine cannot run too. Nothing is changed on error.
Status set_matrix_choices(const std::string& text);

// True when this machine and build can run packed products of the type.
bool packed_products_exist(at::ScalarType dtype);

// The weight [out, in] in oneDNN's layout (an opaque tensor), and x [T, in] times it.
// REQUIRES: packed_products_exist(dtype).
at::Tensor pack_weight(const at::Tensor& w_OI);
at::Tensor packed_product(const at::Tensor& x_TI, const at::Tensor& packed, const at::Tensor& b_O);

}  // namespace braid
