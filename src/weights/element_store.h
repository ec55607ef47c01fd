// The parameters that one rank holds under a layout, addressed as reallocation plans do: by tensor
// kind, layer and interval of elements. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "program/layout.h"

namespace braid::inline weights {

class ElementStore {
 public:
  virtual ~ElementStore() = default;

  // Dtype and device of the elements.
  virtual at::TensorOptions options() const = 0;
  at::ScalarType dtype() const { return c10::typeMetaToScalarType(options().dtype()); }

  // A writable view [size] of the elements where they lie in one piece in memory, else undefined.
  // REQUIRES, here and below: the rank holds the elements.
  virtual at::Tensor span(int32_t kind, int64_t layer, const Interval& elements) const = 0;
  // Copies the elements to or from a contiguous tensor [size] of the store's dtype.
  virtual void read(int32_t kind, int64_t layer, const Interval& elements,
                    const at::Tensor& to) const = 0;
  virtual void write(int32_t kind, int64_t layer, const Interval& elements,
                     const at::Tensor& from) = 0;
};

// Each layer's slice of a kind in one flat tensor.
class FlatStore : public ElementStore {
 public:
  // Allocates, uninitialized, what the device at a place of the layout's mesh holds.
  FlatStore(const std::vector<TensorKind>& kinds, int64_t layers, const ParamLayout& layout,
            size_t mesh_index, const at::TensorOptions& options);

  // What a layout gives the device where `held` contains all of it: views, nothing is copied.
  static FlatStore view_of(const FlatStore& held, const std::vector<TensorKind>& kinds,
                           int64_t layers, const ParamLayout& layout, size_t mesh_index);

  at::TensorOptions options() const override { return options_; }
  at::Tensor span(int32_t kind, int64_t layer, const Interval& elements) const override;
  void read(int32_t kind, int64_t layer, const Interval& elements,
            const at::Tensor& to) const override;
  void write(int32_t kind, int64_t layer, const Interval& elements,
             const at::Tensor& from) override;

  // Calls visit(kind, layer, held elements, tensor) for everything held.
  template <typename Visit>
  void each(const Visit& visit) const {
    for (const auto& [key, slice] : slices_)
      visit(key.first, key.second, slice.elements, slice.values);
  }

 private:
  FlatStore() = default;
  struct Slice {
    Interval elements;
    at::Tensor values;
  };

  at::TensorOptions options_ = at::kFloat;
  std::map<std::pair<int32_t, int64_t>, Slice> slices_;
};

}  // namespace braid::inline weights
