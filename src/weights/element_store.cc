#include "weights/element_store.h"

#include <ATen/ops/empty.h>

#include "base/text.h"
#include "program/local_parts.h"

namespace braid::inline weights {

FlatStore::FlatStore(const std::vector<TensorKind>& kinds, int64_t layers,
                     const ParamLayout& layout, size_t mesh_index, const at::TensorOptions& options)
    : options_(options) {
  for (const MessagePart& part : held_parts(kinds, layers, layout, mesh_index))
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
      slices_[{part.item, layer}] = {part.units, at::empty({part.units.size()}, options)};
}

FlatStore FlatStore::view_of(const FlatStore& held, const std::vector<TensorKind>& kinds,
                             int64_t layers, const ParamLayout& layout, size_t mesh_index) {
  FlatStore out;
  out.options_ = held.options_;
  for (const MessagePart& part : held_parts(kinds, layers, layout, mesh_index))
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
      out.slices_[{part.item, layer}] = {part.units, held.span(part.item, layer, part.units)};
  return out;
}

at::Tensor FlatStore::span(int32_t kind, int64_t layer, const Interval& elements) const {
  const auto found = slices_.find({kind, layer});
  BRAID_CHECK(found != slices_.end(), cat("kind ", kind, " of layer ", layer, " is not held"));
  const Slice& slice = found->second;
  BRAID_CHECK(slice.elements.begin <= elements.begin && elements.end <= slice.elements.end,
              cat("elements ", elements.begin, " to ", elements.end, " are not held"));
  return slice.values.narrow(0, elements.begin - slice.elements.begin, elements.size());
}

void FlatStore::read(int32_t kind, int64_t layer, const Interval& elements,
                     const at::Tensor& to) const {
  to.copy_(span(kind, layer, elements));
}

void FlatStore::write(int32_t kind, int64_t layer, const Interval& elements,
                      const at::Tensor& from) {
  span(kind, layer, elements).copy_(from);
}

}  // namespace braid::inline weights
