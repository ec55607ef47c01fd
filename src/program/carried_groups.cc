#include "program/carried_groups.h"

#include <algorithm>

namespace braid::inline program {

std::optional<std::vector<bool>> taken_groups(const std::vector<GroupInFlight>& groups,
                                              int64_t wanted) {
  const auto waited_for = [](const GroupInFlight& group) { return group.due && !group.finished; };
  const auto finished = [](const GroupInFlight& group) { return group.finished; };
  if (std::any_of(groups.begin(), groups.end(), waited_for) ||
      std::count_if(groups.begin(), groups.end(), finished) < wanted)
    return std::nullopt;
  std::vector<bool> out(groups.size(), false);
  for (const bool due : {true, false})
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].due != due || !groups[i].finished || wanted == 0) continue;
      out[i] = true;
      --wanted;
    }
  return out;
}

}  // namespace braid::inline program
