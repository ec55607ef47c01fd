// The parameters that one rank holds under a layout, addressed as reallocation plans do: by tensor
// kind, layer and interval of elements. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "base/text.h"
#include "program/layout.h"

namespace braid::inline weights {

class ElementStore {
 public:
  virtual ~ElementStore() = default;

  // Dtype and device of the elements.
  virtual at::TensorOptions options() const = 0;
  at::ScalarType dtype() const { return c10::typeMetaToScalarType(options().dtype()); }

  // Some elements, for messages.
  virtual std::string name(int32_t kind, int64_t layer, const Interval& elements) const {
    return cat("elements ", elements.begin, " to ", elements.end, " of kind ", kind, " in layer ",
               layer);
  }
  // A writable view [size] of the elements where they lie in one piece in memory, else undefined.
  // REQUIRES, here and below: the rank holds the elements.
  virtual at::Tensor span(int32_t kind, int64_t layer, const Interval& elements) const = 0;
  // Copies the elements to or from a contiguous tensor [size] of the store's dtype.
  virtual void read(int32_t kind, int64_t layer, const Interval& elements,
                    const at::Tensor& to) const = 0;
  virtual void write(int32_t kind, int64_t layer, const Interval& elements,
                     const at::Tensor& from) = 0;
};

}  // namespace braid::inline weights
