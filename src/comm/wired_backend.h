// The backend of a group of many ranks, over wires: what such a group says together travels up and
// down one tree, long tensors around one ring, messages straight to their receiver. So a rank has
// connections to a few neighbours, and to those whom it sends messages, whatever the size of the
// group. A group of few is a mesh of Gloo's, in which every rank is connected to every other.
//
// Sums are added in an order that the number of ranks and the size of the tensor decide, and are
// the same bits on all ranks. Not for callers outside comm.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/tree_place.h"
#include "comm/group_backend.h"
#include "comm/wires.h"

namespace braid::inline comm {

// The rule: groups of more ranks than this are over wires.
inline constexpr int64_t kMostInMesh = 8;

struct WiredGroup {
  std::string name;
  std::vector<int64_t> members;  // global ranks
  int place = 0;                 // of this rank
};
// Connects nothing yet. REQUIRES: `wires` outlives it, and is closed before it ends.
std::unique_ptr<GroupBackend> wired_backend(Wires& wires, WiredGroup group);

}  // namespace braid::inline comm
