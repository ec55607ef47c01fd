// What of a program this runtime executes.
#include "plan/executable.h"
#include "base/text.h"
#include "program/placement.h"
#include "runtime/session.h"

namespace braid {

Status check_executable(const Program& program) {
  for (size_t i = 0; i < program.calls.size(); ++i)
    if (uses_model(program.graph.calls[i]))
      BRAID_TRY(check_executable(program.graph.calls[i], program.calls[i].mesh,
                                 program.calls[i].strategy));
  for (const RoleState& state : program.states)
    return invalid_input(cat("plan: role ", state.role, ": ",
                             state.optimizer ? "optimizer" : "weights",
                             ": host is not executable by braid train yet"));
  return ok_status();
}

}  // namespace braid
