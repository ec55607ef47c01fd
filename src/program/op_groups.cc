// Which ranks communicate in a call.
#include <algorithm>

#include "program/expand.h"

namespace braid::inline program {
namespace {

// The kind whose units several tensor-parallel ranks share: key-value heads.
int64_t ranks_per_unit(const CallFrame& frame) {
  const int64_t tp = frame.where->strategy.tp;
  int64_t most = 1;
  for (const TensorKind& kind : frame.model->kinds)
    if (kind.units > 1 && kind.units < tp) most = std::max(most, tp / kind.units);
  return most;
}

// A run of neighbours in a stage's grid, where tensor-parallel ranks are next to each other, then
// context parallel, then data parallel: rank, distance, number.
struct GridRun {
  int first = 0, stride = 1, count = 1;
};

// Of dense parameters a rank is copy * tp + tp_rank; of routed experts block * (ep * expert_tp) +
// part.
GridRun dense_run(const Strategy& s, GroupKind kind, int copy, int tp_rank) {
  const int shards = zero_ranks(s), copies = dense_copies(s);
  switch (kind) {
    case GroupKind::kContext:
      return {copy / s.cp * s.cp * s.tp + tp_rank, s.tp, s.cp};
    case GroupKind::kShards:
      return {copy / shards * shards * s.tp + tp_rank, s.tp, shards};
    case GroupKind::kAcross:
      return {copy % shards * s.tp + tp_rank, s.tp * shards, copies / shards};
    default:
      return {tp_rank, s.tp, copies};
  }
}

GridRun expert_run(const Strategy& s, GroupKind kind, int rank) {
  const int parts = s.ep * expert_tp(s), block = rank / parts, part = rank % parts;
  const int shards = expert_zero_ranks(s), blocks = dense_copies(s) * s.tp / parts;
  switch (kind) {
    case GroupKind::kExperts:
      return {block * parts + part % expert_tp(s), expert_tp(s), s.ep};
    case GroupKind::kExpertShards:
      return {block / shards * shards * parts + part, parts, shards};
    case GroupKind::kExpertAcross:
      return {block % shards * parts + part, parts * shards, blocks / shards};
    default:
      return {part, parts, blocks};
  }
}

GridRun stage_run(const CallFrame& frame, GroupKind kind, const GridPosition& at) {
  const Strategy& s = frame.where->strategy;
  const int copy = copy_rank(s, at), first = copy * s.tp;
  switch (kind) {
    case GroupKind::kTensor:
      return {first, 1, s.tp};
    case GroupKind::kShared: {
      const auto ranks = static_cast<int>(ranks_per_unit(frame));
      return {first + at.tp_rank / ranks * ranks, 1, ranks};
    }
    case GroupKind::kContext:
    case GroupKind::kData:
    case GroupKind::kShards:
    case GroupKind::kAcross:
      return dense_run(s, kind, copy, at.tp_rank);
    case GroupKind::kEnds:
      return {first + at.tp_rank, 1, 1};
    case GroupKind::kReplica:
      return {at.dp_rank * s.cp * s.tp, 1, s.cp * s.tp};
    case GroupKind::kCall:
      return {0, 1, dense_copies(s) * s.tp};
    default:
      return expert_run(s, kind, first + at.tp_rank);
  }
}

// Whether ops have groups of this kind. Of copies that ZeRO shards over as a whole one group is
// enough, and so it is of routed experts that lie where the other tensors lie.
bool has_ops(const Strategy& s, GroupKind kind) {
  const bool part = zero_ranks(s) < dense_copies(s);
  switch (kind) {
    case GroupKind::kShards:
      return part;
    case GroupKind::kExpertData:
      return own_expert_grid(s);
    case GroupKind::kExpertShards:
    case GroupKind::kExpertAcross:
      return own_expert_grid(s) && part;
    default:
      return true;
  }
}

std::vector<int> stages_of(const Strategy& s, GroupKind kind, int stage) {
  const bool end = s.pp > 1 && (stage == 0 || stage == s.pp - 1);
  if (kind == GroupKind::kEnds && end) return {0, s.pp - 1};
  if (kind != GroupKind::kReplica && kind != GroupKind::kCall) return {stage};
  std::vector<int> out;
  for (int each = 0; each < s.pp; ++each) out.push_back(each);
  return out;
}

}  // namespace

OpGroup group_of(const CallFrame& frame, GroupKind kind, const GridPosition& at) {
  const CallPlacement& where = *frame.where;
  const Strategy& s = where.strategy;
  const GridRun run = stage_run(frame, kind, at);
  OpGroup group{kind, {}, run.stride};
  for (const int stage : stages_of(s, kind, at.stage))
    for (int i = 0; i < run.count; ++i)
      group.members.push_back(
          where.mesh.devices[stage * dense_copies(s) * s.tp + run.first + i * run.stride]);
  if (kind == GroupKind::kReplica) {
    const DeviceId first = where.mesh.devices[mesh_index(s, {at.dp_rank, 0, s.pp - 1})];
    std::rotate(group.members.begin(), std::find(group.members.begin(), group.members.end(), first),
                group.members.end());
  }
  return group;
}

// In the order of their kinds, of each of which it is in one: whoever is in two groups meets their
// members in one order.
std::vector<OpGroup> groups_at(const CallFrame& frame, const GridPosition& at) {
  std::vector<OpGroup> out;
  for (const GroupKind kind :
       {GroupKind::kTensor, GroupKind::kShared, GroupKind::kContext, GroupKind::kExperts,
        GroupKind::kData, GroupKind::kShards, GroupKind::kAcross, GroupKind::kExpertData,
        GroupKind::kExpertShards, GroupKind::kExpertAcross, GroupKind::kEnds, GroupKind::kReplica,
        GroupKind::kCall}) {
    if (!has_ops(frame.where->strategy, kind)) continue;
    OpGroup group = group_of(frame, kind, at);
    if (group.members.size() > 1) out.push_back(std::move(group));
  }
  return out;
}

}  // namespace braid::inline program
