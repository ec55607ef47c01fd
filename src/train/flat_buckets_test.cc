#include "train/flat_buckets.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <set>

namespace braid::inline train {
namespace {

using Tensors = std::vector<std::pair<std::string, at::Tensor>>;

Tensors five() {
  return {{"a", at::zeros({3})},
          {"b", at::zeros({2, 2})},
          {"c", at::zeros({5})},
          {"d", at::zeros({1})},
          {"e", at::zeros({7})}};
}

// Every element of every tensor is in one rank's slice once.
void expect_spread(const FlatBuckets& layout) {
  for (const BucketPlace& place : layout.places()) {
    int64_t next = 0;
    for (int64_t rank = 0; rank < layout.ranks(); ++rank) {
      const int64_t size = layout.slice_size(place.bucket);
      const SlicePart part = FlatBuckets::part_of(place, rank * size, size);
      if (part.size == 0) continue;
      EXPECT_EQ(part.in_parameter, next) << place.name;
      EXPECT_EQ(part.in_slice, place.begin + next - rank * size) << place.name;
      next += part.size;
    }
    EXPECT_EQ(next, place.parameter.numel()) << place.name;
  }
}

TEST(FlatBuckets, TensorsLieInReverseOrderAndAreNeverCut) {
  const FlatBuckets layout(five(), 3, {.elements = 8});
  std::vector<std::string> names;
  for (const BucketPlace& place : layout.places()) names.push_back(place.name);
  EXPECT_EQ(names, (std::vector<std::string>{"e", "d", "c", "b", "a"}));
  EXPECT_EQ(layout.size(), 3u);  // 7 + 1, 5, 4 + 3
  EXPECT_EQ(layout.padded(0), 9);
  EXPECT_EQ(layout.slice_size(1), 2);
  expect_spread(layout);
}

TEST(FlatBuckets, BucketsHoldTensorsOfOneNumber) {
  const FlatBuckets layout(five(), 2, {.elements = 100, .apart = {0, 4, 0, 4, 8}});
  EXPECT_EQ(layout.size(), 3u);
  std::set<int64_t> numbers;
  for (size_t bucket = 0; bucket < layout.size(); ++bucket) numbers.insert(layout.number(bucket));
  EXPECT_EQ(numbers, (std::set<int64_t>{0, 4, 8}));
  for (const BucketPlace& place : layout.places())
    EXPECT_EQ(layout.number(place.bucket) == 4, place.name == "b" || place.name == "d");
  expect_spread(layout);
}

}  // namespace
}  // namespace braid::inline train
