#include "program/lower.h"

namespace braid::inline program {

std::vector<Instruction> lower(const Call& call, CallId id) {
  const auto region = [&](ExitCondition exit, std::vector<OpCode> body) {
    std::vector<Instruction> out = {{OpCode::kRegionBegin, id, exit, {}, -1}};
    for (const OpCode code : body) out.push_back({code, id, ExitCondition::kNone, {}, -1});
    out.push_back({OpCode::kRegionEnd, id, exit, {}, -1});
    return out;
  };
  switch (call.kind) {
    case CallKind::kGenerate:
      return region(ExitCondition::kDrained, {OpCode::kGenerateStep, OpCode::kAgree});
    case CallKind::kTrainStep:
      return region(ExitCondition::kMinibatchesDone,
                    {OpCode::kSchedule, OpCode::kAgree, OpCode::kOptimizerStep});
    default:
      return {{OpCode::kCall, id, ExitCondition::kNone, {}, -1}};
  }
}

int32_t add_share(CallId id, std::vector<DeviceId> members, Program* program) {
  const Call& call = program->graph.calls[id.value];
  program->exchanges.push_back({id, CallId{-1}, shared_fields(call), std::move(members)});
  return static_cast<int32_t>(program->exchanges.size()) - 1;
}

}  // namespace braid::inline program
