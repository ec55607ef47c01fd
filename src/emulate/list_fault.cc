#include "emulate/list_fault.h"

#include <map>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "sim/step_prices.h"

namespace braid::inline emulate {
namespace {

// Indices of the first two activations that these ops send over one channel; {-1, -1} for none.
std::pair<int32_t, int32_t> two_sends(const Expansion& ops) {
  std::map<std::pair<Channel, DeviceId>, int32_t> seen;
  for (size_t i = 0; i < ops.ops.size(); ++i) {
    const Op& op = ops.ops[i];
    if (op.kind != OpKind::kSend) continue;
    const auto at = static_cast<int32_t>(i);
    const auto [first, added] = seen.try_emplace({op.channel, op.peer}, at);
    if (!added) return {first->second, at};
  }
  return {-1, -1};
}

FaultPlace two_list_messages(const Program& program) {
  FaultPlace out;
  for (size_t entry = 0; entry < program.reallocations.size(); ++entry) {
    std::map<std::tuple<DeviceId, DeviceId, int32_t, int32_t>, int32_t> seen;
    const auto& messages = program.reallocations[entry].messages;
    for (size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      const auto [first, added] = seen.try_emplace(
          {message.from, message.to, message.depth, message.lane}, static_cast<int32_t>(i));
      if (added) continue;
      out.kind = FaultPlace::kListMessages;
      out.rank = message.from, out.entry = static_cast<int32_t>(entry);
      out.first = first->second, out.second = static_cast<int32_t>(i);
      return out;
    }
  }
  return out;
}

// The simulator expands the ops of every stage.
Result<FaultPlace> two_stage_messages(const Program& program, const PlanningProblem& problem,
                                      const Calibration& calibration, SimOptions options) {
  FaultPlace out;
  options.change_ops = [&](Expansion* ops) {
    if (out.kind != FaultPlace::kNowhere || two_sends(*ops).first < 0) return;
    out.kind = FaultPlace::kStageMessages;
    out.call = ops->call, out.rank = ops->rank;
  };
  BRAID_TRY(simulate(program, problem, calibration, options).status());
  return out;
}

// Every wait that some list states.
std::vector<FaultPlace> stated_waits(const Program& program) {
  std::vector<FaultPlace> out;
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    for (const auto kind :
         {FaultPlace::kCallStarts, FaultPlace::kMessagesStart, FaultPlace::kPassesStart}) {
      FaultPlace place;
      place.kind = kind, place.call = CallId{static_cast<int32_t>(i)};
      const bool pipeline = uses_model(program.graph.calls[i]) &&
                            program.graph.calls[i].kind != CallKind::kGenerate &&
                            program.calls[i].strategy.pp > 1;
      if (kind == FaultPlace::kPassesStart
              ? pipeline
              : break_lists(program, place, DeviceId{0}).program != program)
        out.push_back(place);
    }
  return out;
}

void drop_waits(const FaultPlace& place, RankProgram* rank) {
  bool begun = false;
  for (Instruction& each : rank->instructions) {
    if (each.call != place.call) continue;
    if (each.kind == OpKind::kReallocate) {
      if (place.kind == FaultPlace::kMessagesStart) each.after.clear();
    } else if (!stands_between_calls(each.kind) && !std::exchange(begun, true)) {
      if (place.kind == FaultPlace::kCallStarts) each.after.clear();
    }
  }
}

}  // namespace

BrokenLists break_lists(const Program& program, const FaultPlace& place, DeviceId self) {
  BrokenLists out{program, {}};
  if (place.kind == FaultPlace::kCallStarts || place.kind == FaultPlace::kMessagesStart)
    for (RankProgram& rank : out.program.ranks) drop_waits(place, &rank);
  if (place.kind == FaultPlace::kListMessages && self == place.rank) {
    auto& messages = out.program.reallocations[place.entry].messages;
    std::swap(messages[place.first], messages[place.second]);
  }
  if (place.kind == FaultPlace::kPassesStart)
    out.change_ops = [call = place.call](Expansion* ops) {
      for (Op& op : ops->ops)
        if (ops->call == call && (op.kind == OpKind::kForward || op.kind == OpKind::kBackward))
          op.after = {-1, -1};
    };
  if (place.kind == FaultPlace::kStageMessages)
    out.change_ops = [place](Expansion* ops) {
      if (ops->call != place.call || ops->rank != place.rank) return;
      const auto [first, second] = two_sends(*ops);
      std::swap(ops->ops[first], ops->ops[second]);
    };
  return out;
}

Result<FaultPlace> find_fault(const Program& program, const PlanningProblem& problem,
                              const Calibration& calibration, const SimOptions& options,
                              const Trace& right, ListFault fault, double least) {
  FaultPlace found;
  if (fault == ListFault::kSwappedMessages) {
    found = two_list_messages(program);
    if (found.kind == FaultPlace::kNowhere) {
      BRAID_ASSIGN(found, two_stage_messages(program, problem, calibration, options));
    }
    if (found.kind != FaultPlace::kNowhere) return found;
    return invalid_input("runtime.fault: no rank of this plan sends two messages over one channel");
  }
  for (FaultPlace& place : stated_waits(program)) {
    const BrokenLists broken = break_lists(program, place, DeviceId{0});
    SimOptions changed = options;
    changed.change_ops = broken.change_ops;
    BRAID_ASSIGN(const Trace trace, simulate(broken.program, problem, calibration, changed));
    place.effect = compare_ops(right, trace).largest;
    if (place.effect > found.effect) found = place;
  }
  if (found.effect > least) return found;
  return invalid_input(
      cat("runtime.fault: no wait that the lists of this plan state moves an op by "
          "more than ",
          static_cast<int>(100 * least), " % of the step, the farthest ",
          static_cast<int>(1000 * found.effect) / 10.0, " %"));
}

std::string fault_text(const Program& program, const FaultPlace& place) {
  const std::string call = place.call.value < 0 ? "" : program.graph.calls[place.call.value].name;
  switch (place.kind) {
    case FaultPlace::kNowhere:
      return "";
    case FaultPlace::kCallStarts:
      return cat(call, " begins without what it waits for");
    case FaultPlace::kMessagesStart:
      return cat("messages before ", call, " go without what they wait for");
    case FaultPlace::kPassesStart:
      return cat("passes of ", call, " begin without the activations that they read");
    case FaultPlace::kListMessages:
      return cat("rank ", place.rank.value, " sends two messages of weights of ",
                 program.copies[program.reallocations[place.entry].copy].role, " swapped");
    case FaultPlace::kStageMessages:
      return cat("rank ", place.rank.value, " sends two activations of ", call, " swapped");
  }
  return "";
}

}  // namespace braid::inline emulate
