#include "program/body_groups.h"

#include <algorithm>

#include "program/expand.h"
#include "program/hand_over.h"
#include "program/lower.h"
#include "program/streamed_update.h"

namespace braid::inline program {
namespace {

int32_t group_index(RankGroup group, Program* program) {
  std::vector<RankGroup>& groups = program->groups;
  const auto found = std::find(groups.begin(), groups.end(), group);
  const auto index = static_cast<int32_t>(found - groups.begin());
  if (found == groups.end()) groups.push_back(std::move(group));
  return index;
}

// Every group of a kind once, in the order of its first members.
GroupOfRank group_indices(const CallFrame& frame, GroupKind kind, Program* program) {
  GroupOfRank out;
  const std::vector<DeviceId>& devices = frame.where->mesh.devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (out.count(devices[i]) > 0) continue;
    RankGroup group{group_of(frame, kind, grid_position(frame.where->strategy, i)).members};
    const std::vector<DeviceId> members = group.members;
    const int32_t index = members.size() == 1 ? -1 : group_index(std::move(group), program);
    for (const DeviceId member : members) out[member] = index;
  }
  return out;
}

}  // namespace

BodyGroups body_groups(CallId id, Program* program) {
  const CallKind kind = program->graph.calls[id.value].kind;
  if (kind != CallKind::kTrainStep && kind != CallKind::kGenerate) return {};
  const CallFrame frame = call_frame(*program, id);
  const auto of = [&](GroupKind group) { return group_indices(frame, group, program); };
  if (kind == CallKind::kGenerate && program->scoring.generate == id)
    return {of(GroupKind::kReplica), {}, of(GroupKind::kCall)};
  if (kind == CallKind::kGenerate) return {of(GroupKind::kReplica), {}};
  BodyGroups out = {of(GroupKind::kCall), {}};
  const Strategy& s = frame.where->strategy;
  if (sums_copies(s))
    out.copies = of(dense_copies(s) > 1 ? GroupKind::kData : GroupKind::kExpertData);
  return out;
}

void add_groups(const Program& program, CallId id, const BodyGroups& groups, DeviceId device,
                std::vector<Instruction>* body) {
  for (Instruction& each : *body)
    if (each.kind == OpKind::kAgree) each.detail = groups.agree.at(device);
  for (Instruction& each : *body)
    if (each.kind == OpKind::kTally && counts_together(each.part))
      each.detail = groups.tally.at(device);
  if (groups.copies.empty() || ends_before_update(program, id, body->front().part)) return;
  const auto insert_after = [&](OpKind before, OpKind added) {
    const auto spot = std::find_if(body->begin(), body->end(),
                                   [&](const Instruction& i) { return i.kind == before; });
    Instruction more{added, id, ExitCondition::kNone, {}, groups.copies.at(device)};
    more.part = spot->part;
    body->insert(spot + 1, std::move(more));
  };
  const int zero = program.calls[id.value].strategy.zero_stage;
  insert_after(OpKind::kPasses, OpKind::kReduce);
  if (zero == 1 || zero == 2) insert_after(OpKind::kUpdate, OpKind::kAllGather);
}

}  // namespace braid::inline program
