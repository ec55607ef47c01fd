// Numbers as people write them, such as ranks and devices. Pure; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace braid::inline base {

// Neighbours in a list that are equally far from each other as numbers.
struct NumberRun {
  int64_t first = 0, last = 0, stride = 1;
  int64_t count() const { return last < first ? 0 : (last - first) / stride + 1; }
  friend bool operator==(const NumberRun&, const NumberRun&) = default;
};

// Fewer numbers with gaps between them are easier to read one by one.
inline constexpr size_t kLeastStrided = 4;

// A list as runs: neighbours as numbers, or at least kLeastStrided with gaps.
inline std::vector<NumberRun> number_runs_of(const std::vector<int64_t>& numbers) {
  std::vector<NumberRun> out;
  for (size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    const int64_t first = numbers[begin];
    end = begin + 1;
    const int64_t stride = end < numbers.size() ? numbers[end] - first : 0;
    while (stride > 0 && end < numbers.size() && numbers[end] == numbers[end - 1] + stride) ++end;
    if (stride != 1 && end - begin < kLeastStrided) end = begin + 1;
    out.push_back({first, numbers[end - 1], end - begin > 1 ? stride : 1});
  }
  return out;
}

// "0-6,9,16-28/4": 4 is how far the numbers of a run are from each other. "" of none.
inline std::string number_runs(const std::vector<int64_t>& numbers) {
  std::vector<std::string> runs;
  for (const NumberRun& run : number_runs_of(numbers))
    runs.push_back(cat(run.first, run.last == run.first ? "" : cat("-", run.last),
                       run.stride == 1 ? "" : cat("/", run.stride)));
  return join(runs, ",");
}

// One of those: "9", "0-6" or "16-28/4"; nothing where the text is none. The last number
// is one of the run, which may be empty ("7-0").
inline std::optional<NumberRun> parse_number_run(std::string_view text) {
  const size_t dash = std::min(text.find('-', 1), text.size());
  const size_t slash = std::min(text.find('/', dash), text.size());
  NumberRun out;
  if (!parse_int(text.substr(0, dash), &out.first)) return std::nullopt;
  out.last = out.first;
  if (dash < text.size() && !parse_int(text.substr(dash + 1, slash - dash - 1), &out.last))
    return std::nullopt;
  if (slash < text.size() && !parse_int(text.substr(slash + 1), &out.stride)) return std::nullopt;
  if (out.stride < 1) return std::nullopt;
  if (out.count() > 0) out.last -= (out.last - out.first) % out.stride;
  return out;
}

}  // namespace braid::inline base
