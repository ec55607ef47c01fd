// Which rank's file holds which slices of a group of tensors: what the manifest of a checkpoint
// says, so that a reader opens the files that have something for it and no others. Not for callers
// outside checkpoint. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/saved_slice.h"

namespace braid::inline checkpoint {

// By tensor its shape and the slices of it, each behind the rank whose file has it; a slice that is
// all of the tensor has no ranges: "[6,4] 0[0:2,0:4] 1[2:6,0:4]". A short text for each, since a
// checkpoint of many ranks has many.
using SliceIndex = std::map<std::string, std::string>;

struct PlacedSlice {
  int64_t rank = 0;
  std::vector<int64_t> offset, extent;
  friend bool operator==(const PlacedSlice&, const PlacedSlice&) = default;
};

struct TensorPlaces {
  std::vector<int64_t> shape;
  std::vector<PlacedSlice> slices;
};

// Of the file that a rank has written.
SliceIndex index_of(int64_t rank, const std::vector<SavedSlice>& slices);
// Adds what another rank has; an error where the two have a tensor in different shapes.
Status add_index(const SliceIndex& more, SliceIndex* index);
// What an index says of one of its tensors.
Result<TensorPlaces> places_of(const std::string& tensor, const std::string& text);

// Where a slice of a rank's file lies.
PlacedSlice place_of(int64_t rank, const SavedSlice& slice);
// Whether the two have numbers in common. REQUIRES: they are of one tensor.
bool overlap(const PlacedSlice& a, const PlacedSlice& b);
// "NAME[0:12, 4:8]".
std::string place_text(const std::string& tensor, const PlacedSlice& slice);

}  // namespace braid::inline checkpoint
