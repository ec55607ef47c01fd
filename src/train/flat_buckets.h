// Tensors one after another in buckets (models/flat_layout.h): what travels between ranks that
// hold equal tensors, and of which each rank owns a slice of one size. A plain value; thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/flat_layout.h"

namespace braid::inline train {

struct BucketOptions {
  int64_t elements = kBucketElements;  // of a bucket; a tensor is never cut
  // Of each tensor a number, or nothing: a bucket holds tensors of one number alone.
  std::vector<int64_t> apart = {};
};

// Where a tensor lies: elements [begin, begin + parameter.numel()) of a bucket.
struct BucketPlace {
  std::string name;
  at::Tensor parameter;
  size_t bucket = 0;
  int64_t begin = 0;
};

// What of a tensor a slice has; may be empty.
struct SlicePart {
  int64_t in_parameter = 0, in_slice = 0, size = 0;
};

// A run of a parameter's numbers, or of a state of its optimizer, that a rank holds: elements
// [begin, begin + values.numel()) of the rank's part of the parameter in its own order.
struct StateSlice {
  std::string name;   // of the parameter
  std::string state;  // "exp_avg", "exp_avg_sq", "master"; "" of the weights themselves
  int64_t begin = 0;
  at::Tensor values;  // flat; aliases what is held
};

class FlatBuckets {
 public:
  FlatBuckets(const std::vector<std::pair<std::string, at::Tensor>>& tensors, int64_t ranks,
              const BucketOptions& options);

  const std::vector<BucketPlace>& places() const { return places_; }
  size_t size() const { return buckets_.size(); }
  int64_t ranks() const { return ranks_; }
  // Elements of a bucket, padded to a multiple of the ranks; of the slice of one rank.
  int64_t padded(size_t bucket) const { return buckets_[bucket].padded; }
  int64_t slice_size(size_t bucket) const { return padded(bucket) / ranks_; }
  int64_t tensors(size_t bucket) const { return buckets_[bucket].tensors; }
  // The number in BucketOptions::apart of what it holds; 0 where there are none.
  int64_t number(size_t bucket) const { return buckets_[bucket].number; }
  // What of a tensor is in [begin, begin + size) of its bucket.
  static SlicePart part_of(const BucketPlace& place, int64_t begin, int64_t size);

 private:
  int64_t ranks_;
  std::vector<BucketPlace> places_;
  std::vector<FlatBucket> buckets_;
};

}  // namespace braid::inline train
