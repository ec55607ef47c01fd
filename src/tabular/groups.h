// The remaining candidates of a call as a tree, so that a search can decide in steps: how many
// devices, which of them, which layout (as far as moves tell layouts apart), which option. A group
// knows what holds for all candidates in it. Immutable once made; safe to share.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tabular/bound.h"
#include "tabular/model.h"

namespace braid::tabular {

enum Stage : int32_t { kCount, kDevices, kLayout, kOption, kStages };

struct Group {
  int32_t key = 0;  // by stage: number of devices, devices_id, move_class, index of the candidate
  int32_t candidate = 0;    // one of them
  int32_t parent = -1;      // in the stage before
  int32_t first_child = 0;  // in the next stage
  int32_t end_child = 0;
  int32_t devices_id = -1;  // from stage kDevices on
  CallBounds bounds;
};

struct CallGroups {
  std::array<std::vector<Group>, kStages> stages;
  std::vector<int32_t>
      place;  // by candidate: its group in the last stage, -1 if it does not remain
};

// What the keys of a candidate's groups are, by stage.
std::array<int32_t, kStages> group_keys(const Candidate& candidate, int32_t index);

// `remaining`: indices into Model::candidates of the call.
CallGroups group_candidates(const Model& model, int call, const std::vector<int32_t>& remaining);

}  // namespace braid::tabular
