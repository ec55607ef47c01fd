#include "models/flat_layout.h"

#include <map>

namespace braid::inline models {

FlatLayout lay_flat(const std::vector<FlatTensor>& tensors, int64_t ranks, int64_t limit) {
  FlatLayout out;
  out.places.resize(tensors.size());
  std::map<int64_t, size_t> open;  // the bucket that is being filled, by number
  for (size_t i = tensors.size(); i-- > 0;) {
    const FlatTensor& tensor = tensors[i];
    const auto found = open.find(tensor.number);
    if (found == open.end() || out.buckets[found->second].elements + tensor.elements > limit) {
      open[tensor.number] = out.buckets.size();
      out.buckets.push_back({tensor.number});
    }
    const size_t index = open[tensor.number];
    FlatBucket& bucket = out.buckets[index];
    out.places[i] = {index, bucket.elements};
    bucket.elements += tensor.elements;
    ++bucket.tensors;
  }
  for (FlatBucket& bucket : out.buckets)
    bucket.padded = (bucket.elements + ranks - 1) / ranks * ranks;
  return out;
}

}  // namespace braid::inline models
