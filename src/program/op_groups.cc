// Which ranks communicate in a call.
#include <algorithm>

#include "program/expand.h"

namespace braid {
namespace {

// The kind whose units several tensor-parallel ranks share: key-value heads.
int64_t ranks_per_unit(const CallFrame& frame) {
  const int64_t tp = frame.where->strategy.tp;
  int64_t most = 1;
  for (const TensorKind& kind : frame.model->kinds)
    if (kind.units > 1 && kind.units < tp) most = std::max(most, tp / kind.units);
  return most;
}

struct Ranges {
  std::vector<int> stages;
  Interval dp, tp;
};

std::vector<int> all_stages(const Strategy& s) {
  std::vector<int> out;
  for (int stage = 0; stage < s.pp; ++stage) out.push_back(stage);
  return out;
}

Ranges ranges_of(const CallFrame& frame, GroupKind kind, const GridPosition& at) {
  const Strategy& s = frame.where->strategy;
  const Interval replica{at.dp_rank, at.dp_rank + 1}, mine{at.tp_rank, at.tp_rank + 1};
  const Interval every_dp{0, s.dp}, every_tp{0, s.tp};
  switch (kind) {
    case GroupKind::kTensor:
      return {{at.stage}, replica, every_tp};
    case GroupKind::kShared: {
      const int64_t ranks = ranks_per_unit(frame), first = at.tp_rank / ranks * ranks;
      return {{at.stage}, replica, {first, first + ranks}};
    }
    case GroupKind::kData:
      return {{at.stage}, every_dp, mine};
    case GroupKind::kEnds:
      if (s.pp == 1 || (at.stage > 0 && at.stage < s.pp - 1)) return {{at.stage}, replica, mine};
      return {{0, s.pp - 1}, replica, mine};
    case GroupKind::kReplica:
      return {all_stages(s), replica, every_tp};
    case GroupKind::kCall:
      break;
  }
  return {all_stages(s), every_dp, every_tp};
}

}  // namespace

OpGroup group_of(const CallFrame& frame, GroupKind kind, const GridPosition& at) {
  const CallPlacement& where = *frame.where;
  const Strategy& s = where.strategy;
  const Ranges ranges = ranges_of(frame, kind, at);
  OpGroup group{kind, {}, kind == GroupKind::kData ? s.tp : 1};
  for (const int stage : ranges.stages)
    for (int64_t dp_rank = ranges.dp.begin; dp_rank < ranges.dp.end; ++dp_rank)
      for (int64_t tp_rank = ranges.tp.begin; tp_rank < ranges.tp.end; ++tp_rank)
        group.members.push_back(where.mesh.devices[mesh_index(
            s, {static_cast<int>(dp_rank), static_cast<int>(tp_rank), stage})]);
  if (kind == GroupKind::kReplica) {
    const DeviceId first = where.mesh.devices[mesh_index(s, {at.dp_rank, 0, s.pp - 1})];
    std::rotate(group.members.begin(), std::find(group.members.begin(), group.members.end(), first),
                group.members.end());
  }
  return group;
}

std::vector<OpGroup> call_groups(const CallFrame& frame) {
  std::vector<OpGroup> out;
  for (const GroupKind kind : {GroupKind::kTensor, GroupKind::kShared, GroupKind::kData,
                               GroupKind::kEnds, GroupKind::kReplica, GroupKind::kCall})
    for (size_t i = 0; i < frame.where->mesh.devices.size(); ++i) {
      OpGroup group = group_of(frame, kind, grid_position(frame.where->strategy, i));
      const bool first = std::find(out.begin(), out.end(), group) == out.end();
      if (first && group.members.size() > 1) out.push_back(std::move(group));
    }
  return out;
}

}  // namespace braid
