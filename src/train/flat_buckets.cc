#include "train/flat_buckets.h"

#include <algorithm>
#include <map>

#include "base/status.h"

namespace braid::inline train {

FlatBuckets::FlatBuckets(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                         int64_t ranks, const BucketOptions& options)
    : ranks_(ranks) {
  BRAID_CHECK(options.apart.empty() || options.apart.size() == tensors.size(),
              "a number for every tensor");
  std::map<int64_t, size_t> open;  // the bucket that is being filled, by number
  for (size_t i = tensors.size(); i-- > 0;) {
    const int64_t number = options.apart.empty() ? 0 : options.apart[i];
    const int64_t size = tensors[i].second.numel();
    const auto found = open.find(number);
    if (found == open.end() || buckets_[found->second].padded + size > options.elements) {
      open[number] = buckets_.size();
      buckets_.push_back({number, 0, 0});
    }
    const size_t index = open[number];
    places_.push_back({tensors[i].first, tensors[i].second, index, buckets_[index].padded});
    buckets_[index].padded += size;
    ++buckets_[index].tensors;
  }
  for (Bucket& bucket : buckets_) bucket.padded = (bucket.padded + ranks - 1) / ranks * ranks;
}

SlicePart FlatBuckets::part_of(const BucketPlace& place, int64_t begin, int64_t size) {
  const int64_t from = std::max(place.begin, begin);
  const int64_t to = std::min(place.begin + place.parameter.numel(), begin + size);
  if (to <= from) return {};
  return {from - place.begin, from - begin, to - from};
}

}  // namespace braid::inline train
