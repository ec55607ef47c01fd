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
  return ok_status();
}

}  // namespace braid::inline session
