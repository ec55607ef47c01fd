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

bool same_group(const CallFrame& frame, GroupKind kind, const GridPosition& a,
                const GridPosition& b) {
  const bool replica = a.dp_rank == b.dp_rank;
  const int last = frame.where->strategy.pp - 1;
  switch (kind) {
    case GroupKind::kTensor:
      return replica && a.stage == b.stage;
    case GroupKind::kShared: {
      const int64_t ranks = ranks_per_unit(frame);
      return replica && a.stage == b.stage && a.tp_rank / ranks == b.tp_rank / ranks;
    }
    case GroupKind::kData:
      return a.tp_rank == b.tp_rank && a.stage == b.stage;
    case GroupKind::kEnds:
      return replica && a.tp_rank == b.tp_rank &&
             (a.stage == b.stage || (a.stage + b.stage == last && a.stage * b.stage == 0));
    case GroupKind::kReplica:
      return replica;
    case GroupKind::kCall:
      return true;
  }
  return false;
}

}  // namespace

OpGroup group_of(const CallFrame& frame, GroupKind kind, const GridPosition& at) {
  const Strategy& s = frame.where->strategy;
  OpGroup group{kind, {}};
  for (size_t i = 0; i < frame.where->mesh.devices.size(); ++i)
    if (same_group(frame, kind, at, grid_position(s, i)))
      group.members.push_back(frame.where->mesh.devices[i]);
  if (kind == GroupKind::kReplica) {
    const DeviceId first = frame.where->mesh.devices[mesh_index(s, {at.dp_rank, 0, s.pp - 1})];
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
