// Which matrix library multiplies by a weight of a given shape: panels of our own (panels.h),
// oneDNN on weights in its packed layout, or libtorch's default. Measured once per shape and
// machine (choice_cache.h), then fixed, because each library rounds in its own way; the table can
// be saved with a run and set again. Called from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "base/status.h"

namespace braid::inline nn {

enum class MatrixLibrary { kOwn, kPacked, kDefault };

// y = x w^T for a weight [out, in].
struct GemmShape {
  int64_t in = 0;
  int64_t out = 0;
  at::ScalarType dtype = at::kFloat;

  bool operator<(const GemmShape& other) const {
    return std::tie(in, out, dtype) < std::tie(other.in, other.out, other.dtype);
  }
};

// The library for CPU GEMMs of this shape. The first call for a shape that the cache lacks
// measures them in turn at the rows of decode steps with few and with some sequences and at those
// of a pass over many tokens, until each took its shortest time three times. A library's measure is
// the mean over the three of its time in times of the fastest library's; the first in the order of
// the enumeration is taken that is not clearly slower than the best (by a half where other
// processes disturbed all rounds), is there for this type and machine, and gives rows that do not
// depend on their batch.
MatrixLibrary matrix_library(const GemmShape& shape);

// How the ranks of a job come to one choice for each shape: two that measured for themselves could
// round differently. A shape is "DTYPE IN OUT", a library its name.
class ChoiceAgreement {
 public:
  virtual ~ChoiceAgreement() = default;
  // The job's library for the shape, where it has one.
  virtual std::optional<std::string> known(const std::string& shape) = 0;
  // The job's library for the shape: this one, where no rank was first.
  virtual std::string settle(const std::string& shape, const std::string& library) = 0;
  // The job's libraries so far, by shape.
  virtual std::map<std::string, std::string> all() = 0;
};
// From now on choices are made with it; null: for this process alone.
void make_choices_with(ChoiceAgreement* agreement);

// Takes over what the cache has for shapes without a choice.
void take_cached_choices();

// The choices so far, of a job those of all its ranks, a line "DTYPE IN OUT LIBRARY" each, in
// order.
std::string matrix_choices();

// Takes over saved choices for their shapes; a line that is not of that form is an error that names
// it, and a library that this machine does not have too. Nothing is changed on error.
Status set_matrix_choices(const std::string& text);

// True when this machine and build have the library for the type.
bool has_library(MatrixLibrary library, at::ScalarType dtype);

// The weight [out, in] in the library's layout, an opaque tensor of these sizes, and x [T, in]
// times such a tensor of either library. REQUIRES: has_library(library, dtype), and not kDefault.
at::Tensor pack_weight(const at::Tensor& w_OI, MatrixLibrary library);
at::Tensor packed_gemm(const at::Tensor& x_TI, const at::Tensor& packed, const at::Tensor& b_O);

// How many rows a batch of so many is padded to, for GEMMs whose rows do not depend on it.
int64_t padded_rows(int64_t rows, MatrixLibrary library);

// The library that packed it.
MatrixLibrary library_of_packed(const at::Tensor& packed);

}  // namespace braid::inline nn
