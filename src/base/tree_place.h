// A tree of so many places in which each has few neighbours and none is far from the first: along
// it many ranks tell each other something. Pure function.
#pragma once

#include <vector>

namespace braid::inline base {

// A place in the tree of so many. The places below one are those from itself to `end`; all above
// it come before it.
struct TreePlace {
  struct Branch {
    int place = 0, end = 0;
    friend bool operator==(const Branch&, const Branch&) = default;
  };
  int parent = -1;  // of the first: none
  int end = 0;
  std::vector<Branch> branches;  // at most kTreeFanOut
};
inline constexpr int kTreeFanOut = 4;
TreePlace tree_place(int place, int size);

}  // namespace braid::inline base
