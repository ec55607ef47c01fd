// braid: the one program. Picks the subcommand, runs it, and turns its Status into one line and an
// exit code.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <new>

#include "base/text.h"
#include "commands.h"
#include "host/machine.h"

namespace braid {
namespace {

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

// True for the commands that run for minutes and pass over the same memory in every step.
bool trains(const std::string& command) {
  return command == "train" || command == "sft" || command == "rm";
}

// Sets what libgomp and glibc read only when they are loaded, and starts the program once more. A
// setting of the user's stays. Both effects are measured in docs/benchmarks.md:
// * threads of a parallel region wait for each other by spinning, by default for milliseconds:
//   alone on the machine that is fastest, but beside one other busy process they spin while the
//   thread they wait for has no core. A short spin keeps both cases fast;
// * a heap of large pages makes training steps faster; the system takes longer to provide it, which
//   short commands would not earn back.
void restart_with_settings(int argc, char** argv) {
  bool changed = false;
  const auto set = [&](const char* name, const char* value) {
    changed |= setenv(name, value, 0) == 0;
  };
  if (!is_set("GOMP_SPINCOUNT") && !is_set("OMP_WAIT_POLICY")) set("GOMP_SPINCOUNT", "4000");
  if (!is_set("GLIBC_TUNABLES") && argc > 1 && trains(argv[1]))
    set("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
  if (changed) execv("/proc/self/exe", argv);
}

int finish(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "braid: error: %s\n", status.message().c_str());
  return exit_code(status.code());
}

// A configuration key written as an option: "--rollout.temperature", also with "=value".
bool is_key_option(const std::string& argument) {
  if (argument.rfind("--", 0) != 0) return false;
  const std::string name = argument.substr(2, argument.find('=') - 2);
  return name.find('.') != std::string::npos &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string::npos;
}

// The arguments with key options as "key.sub=value", which every command on a configuration takes.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> out;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (is_key_option(argument)) {
      argument = argument.substr(2);
      const bool value_follows = argument.find('=') == std::string::npos && i + 1 < argc;
      if (value_follows) argument += cat("=", argv[++i]);
    }
    out.push_back(std::move(argument));
  }
  return out;
}

int run(int argc, char** argv) {
  CLI::App app("Braid: RLHF training that plans itself", "braid");
  app.require_subcommand(1);
  app.set_version_flag("--version", "braid 0.1.0");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return cat("braid: error: ", error.what(), " (see --help)\n");
  });
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : all_commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    actions[sub] = command.define(*sub);
  }
  try {
    std::vector<std::string> arguments = arguments_of(argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return finish(actions.at(app.get_subcommands().front())());
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::restart_with_settings(argc, argv);
  braid::keep_free_heap();
  try {
    return braid::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "braid: error: out of memory\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "braid: error: %s\n", error.what());
  }
  return 1;
}
