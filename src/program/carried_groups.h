// Which groups of samples a step takes of those in flight, and when its generation may end
// (rollout.in_flight): one rule for runtime and simulator. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace braid::inline program {

// The samples of a prompt.
struct GroupInFlight {
  bool finished = false;  // all of them
  bool due = false;       // the next step may not learn from it: it would be too old
};

// By group, in the order of the data, whether the step takes it: the due ones, then those that came
// first, `wanted` in all. None while too few have finished, or one that is due has not. REQUIRES:
// no more than `wanted` are due, as where a step leaves no more than it takes.
std::optional<std::vector<bool>> taken_groups(const std::vector<GroupInFlight>& groups,
                                              int64_t wanted);

}  // namespace braid::inline program
