#include "braid/program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <new>

#include "base/printable.h"
#include "base/text.h"
#include "host/machine.h"

namespace braid {

int finish(const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "braid: error: %s\n", printable(status.message()).c_str());
  return exit_code(status.code());
}

namespace {

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

// "help", "help COMMAND": as many programs have it.
void ask_for_help(std::vector<std::string>* arguments) {
  arguments->erase(arguments->begin());
  arguments->push_back("--help");
}

// CLI11 would only say that a command is required.
Status check_command(CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().rfind('-', 0) == 0) return ok_status();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), arguments.front()) != names.end()) return ok_status();
  return invalid_input(cat("unknown command '", arguments.front(), "'",
                           did_you_mean(arguments.front(), names), "; known: ", join(names, ", ")));
}

int run(const std::vector<Command>& commands, int argc, char** argv) {
  CLI::App app("Braid: RLHF training that plans itself", "braid");
  app.require_subcommand(1);
  app.set_version_flag("--version", "braid 0.1.0");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return cat("braid: error: ", error.what(), " (see --help)\n");
  });
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : commands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    actions[sub] = command.define(*sub);
  }
  std::vector<std::string> arguments = arguments_of(argc, argv);
  if (!arguments.empty() && arguments.front() == "help") ask_for_help(&arguments);
  if (const Status known = check_command(app, arguments); !known.ok()) return finish(known);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return finish(actions.at(app.get_subcommands().front())());
}

}  // namespace

int run_program(const std::vector<Command>& commands, int argc, char** argv) {
  keep_free_heap();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f fails and is reported
  try {
    return run(commands, argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "braid: error: out of memory\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "braid: error: %s\n", error.what());
  }
  return 1;
}

}  // namespace braid
