#include "samples/call_groups.h"

#include <ATen/ops/tensor.h>

#include "base/rng.h"
#include "base/text.h"

namespace braid::inline samples {
namespace {

constexpr size_t kNamedMembers = 8;  // by a group's name, which is also a key of the store

std::vector<int64_t> members_of(const OpGroup& group) {
  std::vector<int64_t> members;
  for (const DeviceId device : group.members) members.push_back(device.value);
  return members;
}

Result<Communicator*> connect(const OpGroup& group, const char* kind, World& world) {
  return world.group(group_name(kind, group), members_of(group));
}

}  // namespace

// Of many: the first, the last, how many, and a number made of all.
std::string group_name(std::string_view kind, const OpGroup& group) {
  const std::vector<int64_t> members = members_of(group);
  std::string name(kind);
  if (members.size() <= kNamedMembers) {
    for (const int64_t member : members) name += cat("-", member);
    return name;
  }
  uint64_t all = 0;
  for (const int64_t member : members) all = mix_seed(all, static_cast<uint64_t>(member));
  return cat(name, "-", members.front(), "-to-", members.back(), "-of-", members.size(), "-", all);
}

Result<CallGroups> connect_groups(const CallFrame& frame, const GridPosition& at, World* world) {
  const Strategy& strategy = frame.where->strategy;
  CallGroups out;
  out.tensor.tp_rank = at.tp_rank;
  out.tensor.tp_size = strategy.tp;
  out.tensor.sequence_parallel = strategy.sequence_parallel;
  out.tensor.native = frame.model->reduction == Reduction::kNative;
  if (world == nullptr || world->world_size() == 1) return out;
  // Ranks with the same weights are one group, or several that ZeRO shards over.
  const bool part = strategy.zero_stage > 0 && zero_ranks(strategy) < dense_copies(strategy);
  const GroupKind shards = part ? GroupKind::kShards : GroupKind::kData;
  // In the order of the list, which is the same on all ranks: connecting takes all members.
  for (const OpGroup& group : groups_at(frame, at)) {
    BRAID_ASSIGN(Communicator * made, connect(group, group_kind_name(group.kind), *world));
    out.by_kind[group.kind] = made;
    if (group.kind == GroupKind::kTensor) out.tensor.communicator = made;
    if (group.kind == GroupKind::kShared) out.tensor.shared = made;
    if (group.kind == shards) out.data = made;
    if (group.kind == GroupKind::kAcross) out.across = made;
    if (group.kind == shards && strategy.zero_stage == 3) {
      BRAID_ASSIGN(out.weights, connect(group, kWeightsInPasses, *world));
    }
    if (group.kind == GroupKind::kEnds) out.ends = made;
    if (group.kind == GroupKind::kReplica) out.replica = made;
    if (group.kind == GroupKind::kCall) out.call = made;
  }
  // One key-value head: all tensor-parallel ranks share it.
  if (out.tensor.shared == nullptr) out.tensor.shared = out.tensor.communicator;
  return out;
}

Communicator* CallGroups::of(GroupKind kind, bool gathers_weights) const {
  const bool shares = kind == GroupKind::kData || kind == GroupKind::kShards;
  if (gathers_weights && shares && weights != nullptr) return weights;
  const auto found = by_kind.find(kind);
  return found == by_kind.end() ? nullptr : found->second;
}

Result<std::map<int32_t, CallGroups>> connect_calls(const Program& program, DeviceId self,
                                                    World* world) {
  std::map<int32_t, CallGroups> out;
  for (size_t i = 0; i < program.calls.size(); ++i) {
    const CallId id{static_cast<int32_t>(i)};
    if (!uses_model(program.graph.calls[i])) continue;
    const GridPosition at = position_in(program.calls[i], self);
    if (at.dp_rank < 0) continue;
    BRAID_ASSIGN(out[id.value], connect_groups(call_frame(program, id), at, world));
  }
  return out;
}

Result<bool> on_any_rank(bool here, Communicator* group, std::string_view what) {
  if (group == nullptr) return here;
  const at::Tensor found = at::tensor({here ? 1 : 0}, at::kInt);
  BRAID_TRY(group->all_reduce(found, Reduce::kMax, what).wait());
  return found.item<int32_t>() > 0;
}

}  // namespace braid::inline samples
