#include "program/weight_sync.h"

#include <algorithm>

#include "base/contains.h"
#include "base/text.h"
#include "plan/validate.h"
#include "program/placement.h"

namespace braid::inline program {

Result<int32_t> copy_to_sync(const Program& program) {
  const auto refused = [](const std::string& why) {
    return invalid_input(cat("fusion.sync_beside_training: ", why, "; set it false"));
  };
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    const Call& call = program.graph.calls[i];
    if (call.kind != CallKind::kGenerate) continue;
    const int32_t copy = program.calls[i].copy;
    if (!changes(program.graph, call.role))
      return refused(cat("no update changes the weights of ", call.name));
    if (program.copies[copy].home)
      return refused(
          cat(call.name, " has the layout of its role's training, so no weights come over"));
    return copy;
  }
  return refused("the graph generates nothing");
}

bool generates_elsewhere(const ExecutionPlan& plan, const Graph& graph) {
  return std::any_of(graph.calls.begin(), graph.calls.end(), [&](const Call& call) {
    if (call.kind != CallKind::kGenerate) return false;
    const CallPlan& here = call_plan(plan, call.name);
    const CallPlan& home = call_plan(plan, graph.calls[home_call(graph, call.role).value].name);
    return !(param_layout(here.mesh, here.strategy) == param_layout(home.mesh, home.strategy));
  });
}

CallId update_of_synced_copy(const Program& program) {
  const RoleId& role = program.copies[program.synced_copy].role;
  CallId out{-1};
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    if (changes(program.graph.calls[i], role)) out = CallId{static_cast<int32_t>(i)};
  return out;
}

std::vector<CallId> order_of_calls(const Program& program,
                                   const std::vector<std::vector<CallId>>& waits) {
  std::vector<CallId> out;
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    out.push_back(CallId{static_cast<int32_t>(i)});
  if (program.synced_copy < 0) return out;
  const CallId update = update_of_synced_copy(program);
  const auto passes = [&](CallId other) {
    return program.graph.calls[other.value].kind == CallKind::kTrainStep &&
           !contains(waits[update.value], other) && place_in_pair(program, other).entry < 0;
  };
  if (place_in_pair(program, update).entry >= 0) return out;
  for (int32_t at = update.value; at > 0 && passes(out[at - 1]); --at)
    std::swap(out[at - 1], out[at]);
  return out;
}

}  // namespace braid::inline program
