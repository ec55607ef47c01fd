// braid: the one program. Picks the subcommand, runs it, and turns its Status into one line and an
// exit code.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <new>

#include "commands.h"

namespace braid {
namespace {

// Threads of a parallel region wait for each other by spinning, by default for milliseconds: alone
// on the machine that is fastest, but beside one other busy process they spin while the thread they
// wait for has no core. A short spin keeps both cases fast (docs/benchmarks.md). libgomp reads the
// variable when it is loaded, hence the second start; a setting of the user's stays.
void limit_spinning(char** argv) {
  for (const char* name : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
    if (std::getenv(name) != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "20000", 0) == 0) execv("/proc/self/exe", argv);
}

int finish(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "braid: error: %s\n", status.message().c_str());
  return exit_code(status.code());
}

int run(int argc, char** argv) {
  CLI::App app("Braid: RLHF training that plans itself");
  app.require_subcommand(1);
  app.set_version_flag("--version", "braid 0.1.0");
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : all_commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    actions[sub] = command.define(*sub);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return finish(actions.at(app.get_subcommands().front())());
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::limit_spinning(argv);
  try {
    return braid::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "braid: error: out of memory\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "braid: error: %s\n", error.what());
  }
  return 1;
}
