// Columns of the data without which a reward cannot be asked, as far as its start tells: parameters
// of a Python function that have no default. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace braid::inline reward {

// A reward that says which columns it needs.
class NeedsColumns {
 public:
  virtual ~NeedsColumns() = default;
  virtual const std::vector<std::string>& needed_columns() const = 0;
};

}  // namespace braid::inline reward
