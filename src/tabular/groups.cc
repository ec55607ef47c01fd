#include "tabular/groups.h"

#include <algorithm>
#include <tuple>

namespace braid::tabular {
namespace {

// Appends a candidate to the groups of all stages from the first in which it differs from the last.
void append(const Model& model, int call, int32_t index, CallGroups& groups) {
  const Candidate& candidate = model.candidates[call][index];
  const CallBounds bounds = bounds_of(model, candidate);
  const std::array<int32_t, kStages> keys = group_keys(candidate, index);
  bool opened = false;
  int32_t parent = -1;
  for (int32_t s = 0; s < kStages; ++s) {
    std::vector<Group>& stage = groups.stages[s];
    opened = opened || stage.empty() || stage.back().key != keys[s];
    if (opened) {
      Group group;
      group.key = keys[s];
      group.candidate = index;
      group.parent = parent;
      group.devices_id = s >= kDevices ? candidate.devices_id : -1;
      group.first_child = s + 1 < kStages ? static_cast<int32_t>(groups.stages[s + 1].size()) : 0;
      group.bounds = bounds;
      stage.push_back(group);
      if (parent >= 0) groups.stages[s - 1][parent].end_child = static_cast<int32_t>(stage.size());
    } else {
      take_least(stage.back().bounds, bounds);
    }
    parent = static_cast<int32_t>(stage.size()) - 1;
  }
  groups.place[index] = parent;
}

}  // namespace

std::array<int32_t, kStages> group_keys(const Candidate& candidate, int32_t index) {
  return {static_cast<int32_t>(candidate.num_devices()), candidate.devices_id, candidate.move_class,
          index};
}

CallGroups group_candidates(const Model& model, int call, const std::vector<int32_t>& remaining) {
  const std::vector<Candidate>& candidates = model.candidates[call];
  std::vector<int32_t> sorted = remaining;
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    return group_keys(candidates[a], a) < group_keys(candidates[b], b);
  });
  CallGroups groups;
  groups.place.assign(candidates.size(), -1);
  for (const int32_t index : sorted) append(model, call, index, groups);
  for (Group& option : groups.stages[kOption]) option.bounds.assigned = true;
  return groups;
}

}  // namespace braid::tabular
