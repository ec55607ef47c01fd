#include "braid/commands.h"

#include "braid/command_list.h"

#ifdef BRAID_WITH_ENGINE
#include "braid/engine_start.h"
#endif

namespace braid {

#ifdef BRAID_WITH_ENGINE
namespace {

// Arguments are read first: a mistake in them shows before libtorch is loaded.
template <typename Options>
Command in_engine(const EngineCommand<Options>& command, char** argv) {
  return command.with([argv](const Options&, const std::vector<std::string>&) {
    set_library_limits();
    return start_engine(argv);
  });
}

}  // namespace

#define BRAID_START_ENGINE(name) in_engine(k##name, argv),
std::vector<Command> all_commands(char** argv) {
  return {BRAID_COMMANDS(BRAID_LIST_COMMAND, BRAID_LIST_COMMAND, BRAID_START_ENGINE)};
}
#else
std::vector<Command> all_commands(char**) {
  return {BRAID_COMMANDS(BRAID_LIST_COMMAND, BRAID_NO_COMMAND, BRAID_NO_COMMAND)};
}
#endif

}  // namespace braid
