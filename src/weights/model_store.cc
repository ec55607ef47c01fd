#include "weights/model_store.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/text.h"

namespace braid::inline weights {
namespace {

// Rows or columns [whole.begin, whole.end) of a tensor as this rank counts them.
Interval local_range(const TensorShard& shard, int64_t dim, const Interval& whole) {
  if (shard.pieces.empty() || shard.dim != dim) return whole;
  int64_t before = 0;
  for (const IndexRange& piece : shard.pieces) {
    if (piece.begin <= whole.begin && whole.end <= piece.end)
      return {before + whole.begin - piece.begin, before + whole.end - piece.begin};
    before += piece.size();
  }
  BRAID_CHECK(false, cat("rows or columns ", whole.begin, " to ", whole.end, " are not held"));
}

}  // namespace

ModelStore::ModelStore(Model& model, const TensorMap& map)
    : map_(map), options_(at::TensorOptions(model.options().device).dtype(model.options().dtype)) {
  auto* decoder = dynamic_cast<Decoder*>(&model);
  BRAID_CHECK(decoder != nullptr, "a view or an offloaded copy has no places");
  for (const auto& [name, parameter] : decoder->parameters())
    held_[name] = {parameter.detach(), &decoder->shards().at(name)};
}

template <typename Visit>
void ModelStore::each_rectangle(int32_t kind, int64_t layer, const Interval& elements,
                                const Visit& visit) const {
  for (const TensorRegion& region : tensor_regions(map_, kind, layer, elements)) {
    const auto found = held_.find(region.tensor);
    BRAID_CHECK(found != held_.end(), region.tensor + " is not held");
    const Interval rows = local_range(*found->second.shard, 0, region.rows);
    at::Tensor part = found->second.values.narrow(0, rows.begin, rows.size());
    if (part.dim() > 1) {
      const Interval columns = local_range(*found->second.shard, 1, region.columns);
      part = part.narrow(1, columns.begin, columns.size());
    }
    visit(part, region.begin);
  }
}

std::string ModelStore::name(int32_t kind, int64_t layer, const Interval& elements) const {
  const auto regions = tensor_regions(map_, kind, layer, elements);
  const TensorRegion& first = regions.front();
  const std::string more = regions.size() > 1 ? cat(" and ", regions.size() - 1, " behind it") : "";
  return cat("tensor ", first.tensor, ", rows ", first.rows.begin, " to ", first.rows.end, more);
}

at::Tensor ModelStore::span(int32_t kind, int64_t layer, const Interval& elements) const {
  const auto regions = tensor_regions(map_, kind, layer, elements);
  if (regions.size() != 1) return {};
  at::Tensor out;
  each_rectangle(kind, layer, elements, [&](const at::Tensor& part, int64_t) {
    if (part.is_contiguous()) out = part.view({-1});
  });
  return out;
}

void ModelStore::read(int32_t kind, int64_t layer, const Interval& elements,
                      const at::Tensor& to) const {
  const at::NoGradGuard no_grad;
  each_rectangle(kind, layer, elements, [&](const at::Tensor& part, int64_t begin) {
    to.narrow(0, begin - elements.begin, part.numel()).view(part.sizes()).copy_(part);
  });
}

void ModelStore::write(int32_t kind, int64_t layer, const Interval& elements,
                       const at::Tensor& from) {
  const at::NoGradGuard no_grad;
  each_rectangle(kind, layer, elements, [&](const at::Tensor& part, int64_t begin) {
    part.copy_(from.narrow(0, begin - elements.begin, part.numel()).view(part.sizes()));
  });
}

bool ModelStore::is_alias_of(const ModelStore& other, int32_t kind, int64_t layer,
                             const Interval& elements) const {
  const std::vector<TensorRegion> regions = tensor_regions(map_, kind, layer, elements);
  return std::all_of(regions.begin(), regions.end(), [&](const TensorRegion& region) {
    return held_.at(region.tensor).values.is_alias_of(other.held_.at(region.tensor).values);
  });
}

}  // namespace braid::inline weights
