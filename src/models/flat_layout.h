// How tensors that ranks reduce or gather together lie one after another in buckets: what travels,
// and of which each rank owns a slice of one size. They lie in reverse order, as a backward is
// likely to finish them. Pure values; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid::inline models {

inline constexpr int64_t kBucketElements = 8 << 20;  // changes speed alone

struct FlatTensor {
  int64_t elements = 0;
  int64_t number = 0;  // a bucket holds tensors of one number alone
};

struct FlatBucket {
  int64_t number = 0, tensors = 0;
  int64_t elements = 0, padded = 0;  // to a multiple of the ranks
  friend bool operator==(const FlatBucket&, const FlatBucket&) = default;
};

// Where a tensor lies: elements [begin, begin + its own) of a bucket.
struct FlatPlace {
  size_t bucket = 0;
  int64_t begin = 0;
};

struct FlatLayout {
  std::vector<FlatBucket> buckets;
  std::vector<FlatPlace> places;  // of the tensors, in their order
};

// Buckets of at most `limit` elements, or of one tensor: none is cut. REQUIRES: ranks > 0.
FlatLayout lay_flat(const std::vector<FlatTensor>& tensors, int64_t ranks,
                    int64_t limit = kBucketElements);

}  // namespace braid::inline models
