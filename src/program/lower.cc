#include "program/lower.h"

namespace braid::inline program {

int region_phase(OpKind kind) {
  switch (kind) {
    case OpKind::kRegionBegin:
      return 0;
    case OpKind::kPasses:
    case OpKind::kRound:
      return 1;
    case OpKind::kReduce:
      return 2;
    case OpKind::kAgree:
      return 3;
    case OpKind::kUpdate:
    case OpKind::kAllGather:
    case OpKind::kTally:
      return 4;
    default:
      return 5;
  }
}

std::vector<Instruction> fuse_regions(const std::array<std::vector<Instruction>, 2>& regions,
                                      int32_t fused) {
  std::vector<Instruction> out;
  for (int phase = 0; phase <= region_phase(OpKind::kRegionEnd); ++phase)
    for (size_t c = 0; c < regions.size(); ++c)
      for (const Instruction& each : regions[c]) {
        const bool passes = each.kind == OpKind::kPasses;
        if (region_phase(each.kind) != phase || (passes && c > 0)) continue;
        out.push_back(each);
        if (passes) out.back().detail = fused;
      }
  return out;
}

ExitCondition generation_exit(const Call& call, bool handed) {
  if (call.carried_steps > 0) return ExitCondition::kEnoughGroups;
  return handed ? ExitCondition::kFewLeft : ExitCondition::kDrained;
}

std::vector<OpKind> generation_body(bool handed) {
  if (handed) return {OpKind::kRound, OpKind::kAgree, OpKind::kTally};
  return {OpKind::kRound, OpKind::kAgree};
}

std::vector<OpKind> training_body(bool handed) {
  if (handed) return {OpKind::kPasses};
  return {OpKind::kPasses, OpKind::kAgree, OpKind::kUpdate};
}

std::vector<Instruction> lower(const Call& call, CallId id, SamplePart part, bool handed) {
  const auto of_part = [&](std::vector<Instruction> body) {
    for (Instruction& each : body) each.part = part;
    return body;
  };
  const auto region = [&](ExitCondition exit, const std::vector<OpKind>& body) {
    std::vector<Instruction> out = {{OpKind::kRegionBegin, id, exit, {}, -1}};
    for (const OpKind kind : body) out.push_back({kind, id, ExitCondition::kNone, {}, -1});
    out.push_back({OpKind::kRegionEnd, id, exit, {}, -1});
    return of_part(std::move(out));
  };
  switch (call.kind) {
    case CallKind::kGenerate:
      return region(generation_exit(call, handed), generation_body(handed));
    case CallKind::kTrainStep:
      return region(ExitCondition::kMinibatchesDone, training_body(handed));
    case CallKind::kSelect:
      return {{OpKind::kCall, id, ExitCondition::kNone, {}, -1},
              {OpKind::kRepeat, id, ExitCondition::kFilled, {}, -1}};
    default:
      return of_part({{OpKind::kCall, id, ExitCondition::kNone, {}, -1}});
  }
}

int32_t add_share(CallId id, std::vector<DeviceId> members, Program* program) {
  const Call& call = program->graph.calls[id.value];
  program->exchanges.push_back({id, CallId{-1}, shared_fields(call), std::move(members)});
  return static_cast<int32_t>(program->exchanges.size()) - 1;
}

}  // namespace braid::inline program
