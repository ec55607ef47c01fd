#include "base/tree_place.h"

#include <algorithm>
#include <utility>

namespace braid::inline base {

TreePlace tree_place(int place, int size) {
  TreePlace out;
  for (int begin = 0, end = size;;) {
    // The places behind the first of a range are cut into even branches.
    std::vector<TreePlace::Branch> branches;
    const int below = end - begin - 1, count = std::min(below, kTreeFanOut);
    for (int i = 0; i < count; ++i)
      branches.push_back({begin + 1 + below * i / count, begin + 1 + below * (i + 1) / count});
    if (place == begin) {
      out.end = end, out.branches = std::move(branches);
      return out;
    }
    out.parent = begin;
    const auto on = std::find_if(branches.begin(), branches.end(),
                                 [&](const TreePlace::Branch& each) { return place < each.end; });
    begin = on->place, end = on->end;
  }
}

}  // namespace braid::inline base
