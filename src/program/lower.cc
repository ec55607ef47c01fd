#include "program/lower.h"

namespace braid {

std::vector<Instruction> lower(const Call& call, CallId id) {
  const auto region = [&](ExitCondition exit, std::vector<OpKind> body) {
    std::vector<Instruction> out = {{OpKind::kRegionBegin, id, exit, {}, -1}};
    for (const OpKind kind : body) out.push_back({kind, id, ExitCondition::kNone, {}, -1});
    out.push_back({OpKind::kRegionEnd, id, exit, {}, -1});
    return out;
  };
  switch (call.kind) {
    case CallKind::kGenerate:
      return region(ExitCondition::kDrained, {OpKind::kRound, OpKind::kAgree});
    case CallKind::kTrainStep:
      return region(ExitCondition::kMinibatchesDone,
                    {OpKind::kPasses, OpKind::kAgree, OpKind::kUpdate});
    default:
      return {{OpKind::kCall, id, ExitCondition::kNone, {}, -1}};
  }
}

int32_t add_share(CallId id, std::vector<DeviceId> members, Program* program) {
  const Call& call = program->graph.calls[id.value];
  program->exchanges.push_back({id, CallId{-1}, shared_fields(call), std::move(members)});
  return static_cast<int32_t>(program->exchanges.size()) - 1;
}

}  // namespace braid
