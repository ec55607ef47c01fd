#include "train/flat_buckets.h"

#include <algorithm>

#include "base/status.h"

namespace braid::inline train {

FlatBuckets::FlatBuckets(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                         int64_t ranks, const BucketOptions& options)
    : ranks_(ranks) {
  BRAID_CHECK(options.apart.empty() || options.apart.size() == tensors.size(),
              "a number for every tensor");
  std::vector<FlatTensor> flat;
  for (size_t i = 0; i < tensors.size(); ++i)
    flat.push_back({tensors[i].second.numel(), options.apart.empty() ? 0 : options.apart[i]});
  FlatLayout layout = lay_flat(flat, ranks, options.elements);
  buckets_ = std::move(layout.buckets);
  for (size_t i = tensors.size(); i-- > 0;)
    places_.push_back(
        {tensors[i].first, tensors[i].second, layout.places[i].bucket, layout.places[i].begin});
}

SlicePart FlatBuckets::part_of(const BucketPlace& place, int64_t begin, int64_t size) {
  const int64_t from = std::max(place.begin, begin);
  const int64_t to = std::min(place.begin + place.parameter.numel(), begin + size);
  if (to <= from) return {};
  return {from - place.begin, from - begin, to - from};
}

}  // namespace braid::inline train
