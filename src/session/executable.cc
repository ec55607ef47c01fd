// What of a program this runtime executes.
#include "plan/executable.h"
#include "base/text.h"
#include "program/placement.h"
#include "session/session.h"

namespace braid::inline session {

Status check_executable(const Program& program) {
  for (size_t i = 0; i < program.calls.size(); ++i)
    if (uses_model(program.graph.calls[i]))
      BRAID_TRY(check_executable(program.graph.calls[i], program.calls[i].strategy));
  // What a share brings is settled alike on all ranks.
  for (const Exchange& each : program.exchanges)
    if (each.shared() && each.members.size() != program.ranks.size())
      return invalid_input(cat("the share of ", program.graph.calls[each.producer.value].name,
                               " is among ", each.members.size(), " of ", program.ranks.size(),
                               " ranks, which this runtime does not execute"));
  return ok_status();
}

}  // namespace braid::inline session
