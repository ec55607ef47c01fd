// What of a program this runtime executes.
#include <algorithm>

#include "base/text.h"
#include "program/placement.h"
#include "runtime/session.h"

namespace braid {
namespace {

Status refused(const std::string& where, const std::string& what) {
  return invalid_input(cat("plan: ", where, ": ", what,
                           " is not executable by braid train yet; 'braid simulate' prices it"));
}

Status check_strategy(const Call& call, const CallPlacement& placed) {
  const Strategy& s = placed.strategy;
  const std::string where = cat("call ", call.name);
  const bool passes = call.kind == CallKind::kInfer || call.kind == CallKind::kTrainStep;
  if (s.cp > 1) return refused(where, cat("cp ", s.cp));
  if (s.ep > 1) return refused(where, cat("ep ", s.ep));
  if (s.pp > 1 && !passes) return refused(where, cat("pp ", s.pp));
  if (s.tp > 1 && call.kind == CallKind::kReward) return refused(where, cat("tp ", s.tp));
  if (s.interleave > 1) return refused(where, cat("interleave ", s.interleave));
  if (s.zero_stage > 0 && s.dp > 1) return refused(where, cat("zero ", s.zero_stage));
  if (s.recompute == Recompute::kSelective) return refused(where, "recompute: selective");
  if (!std::is_sorted(placed.mesh.devices.begin(), placed.mesh.devices.end()))
    return refused(where, "a mesh whose devices are not in ascending order");
  return ok_status();
}

}  // namespace

Status check_executable(const Program& program) {
  for (size_t i = 0; i < program.calls.size(); ++i)
    if (uses_model(program.graph.calls[i]))
      BRAID_TRY(check_strategy(program.graph.calls[i], program.calls[i]));
  for (const RoleState& state : program.states)
    return refused(cat("role ", state.role),
                   cat(state.optimizer ? "optimizer" : "weights", ": host"));
  return ok_status();
}

}  // namespace braid
