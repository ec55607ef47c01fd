// Weights without a model, for tests and measurements of what moves them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/text.h"
#include "program/local_parts.h"
#include "weights/element_store.h"

namespace braid::inline weights {

// Each layer's slice of a kind in one flat tensor.
class FlatStore : public ElementStore {
 public:
  // Uninitialized, what the device at a place of the layout's mesh holds.
  FlatStore(const std::vector<TensorKind>& kinds, int64_t layers, const ParamLayout& layout,
            size_t mesh_index, at::ScalarType type)
      : type_(type) {
    for (const MessagePart& part : held_parts(kinds, layers, layout, mesh_index))
      for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
        slices_[{part.item, layer}] = {part.units, at::empty({part.units.size()}, options())};
  }

  at::TensorOptions options() const override { return type_; }
  at::Tensor span(int32_t kind, int64_t layer, const Interval& elements) const override {
    const Slice& slice = slices_.at({kind, layer});
    BRAID_CHECK(slice.elements.begin <= elements.begin && elements.end <= slice.elements.end,
                cat("elements ", elements.begin, " to ", elements.end, " are not held"));
    return slice.values.narrow(0, elements.begin - slice.elements.begin, elements.size());
  }
  void read(int32_t kind, int64_t layer, const Interval& elements,
            const at::Tensor& to) const override {
    to.copy_(span(kind, layer, elements));
  }
  void write(int32_t kind, int64_t layer, const Interval& elements,
             const at::Tensor& from) override {
    span(kind, layer, elements).copy_(from);
  }

  // Calls visit(kind, layer, held elements, tensor) for everything held.
  template <typename Visit>
  void each(const Visit& visit) const {
    for (const auto& [key, slice] : slices_)
      visit(key.first, key.second, slice.elements, slice.values);
  }

 private:
  struct Slice {
    Interval elements;
    at::Tensor values;
  };
  at::ScalarType type_;
  std::map<std::pair<int32_t, int64_t>, Slice> slices_;
};

}  // namespace braid::inline weights
