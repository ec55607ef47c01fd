// Rows, columns or other numbered things from one to before another. A plain value.
#pragma once

#include <cstdint>

namespace braid::inline nn {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

}  // namespace braid::inline nn
