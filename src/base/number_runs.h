// Numbers as people write them, such as ranks and devices. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text.h"

namespace braid::inline base {

// "0-6,9": neighbours in the list that are neighbours as numbers are one run. "" of none.
inline std::string number_runs(const std::vector<int64_t>& numbers) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t first = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    runs.push_back(first == i ? cat(numbers[i]) : cat(numbers[first], "-", numbers[i]));
  }
  return join(runs, ",");
}

}  // namespace braid::inline base
