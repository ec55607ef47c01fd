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

Status check_strategy(const Call& call, const Strategy& s) {
  const std::string where = cat("call ", call.name);
  if (s.tp > 1) return refused(where, cat("tp ", s.tp));
  if (s.pp > 1) return refused(where, cat("pp ", s.pp));
  if (s.zero_stage > 0) return refused(where, cat("zero ", s.zero_stage));
  if (s.recompute == Recompute::kSelective) return refused(where, "recompute: selective");
  return ok_status();
}

}  // namespace

Status check_executable(const Program& program) {
  for (size_t i = 0; i < program.calls.size(); ++i)
    if (uses_model(program.graph.calls[i]))
      BRAID_TRY(check_strategy(program.graph.calls[i], program.calls[i].strategy));
  for (const RoleState& state : program.states)
    return refused(cat("role ", state.role),
                   cat(state.optimizer ? "optimizer" : "weights", ": host"));
  for (const Message& message : program.messages)
    if (message.kind == MessageKind::kParameters)
      return refused(cat("role ", program.copies[message.owner].role),
                     "weights that move between calls on other devices");
  return ok_status();
}

}  // namespace braid
