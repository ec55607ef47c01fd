#include "commands.h"

namespace braid {

// Plan side: plan_*.cc. Run side (libtorch): run_*.cc. Each file defines one `Command` value,
// declared here.
#ifdef BRAID_WITH_TORCH
extern const Command kTokenizeCommand;
extern const Command kRewardTestCommand;
#endif

std::vector<Command> all_commands() {
  return {
#ifdef BRAID_WITH_TORCH
      kTokenizeCommand,
      kRewardTestCommand,
#endif
  };
}

}  // namespace braid
