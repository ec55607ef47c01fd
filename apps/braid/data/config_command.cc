// braid config: checks a configuration, prints it, or makes one of another framework's.
#include <cstdio>
#include <cstdlib>

#include "base/contains.h"
#include "base/log.h"
#include "base/text.h"
#include "base/yaml.h"
#include "braid/commands.h"
#include "braid/data/inputs.h"
#include "braid/outputs.h"
#include "braid/plan/foreign_input.h"
#include "config/load.h"
#include "config/reference.h"
#include "foreign/convert/convert.h"
#include "host/file.h"

namespace braid {
namespace {

struct ConfigArguments {
  bool list = false;
  bool resolve = false;
  std::string from;  // framework whose configuration is converted; "" = none
  std::string algorithm, out, read_script;
};

// What --from reads: YAML of TRL, or whatever `braid plan --import` reads.
Result<ForeignKeys> foreign_keys(const ConfigArguments& arguments,
                                 const std::vector<std::string>& inputs) {
  if (arguments.from != "trl") {
    BRAID_ASSIGN(const Framework* framework, find_framework(arguments.from, {"trl"}));
    const char* home = std::getenv("HOME");  // its paths become those of a configuration here
    BRAID_ASSIGN(ForeignInput input,
                 read_foreign_input(
                     *framework, {inputs, arguments.read_script, 0, home == nullptr ? "" : home}));
    for (const std::string& note : input.notes) log_info(note);
    return std::move(input.keys);
  }
  if (!arguments.read_script.empty())
    return invalid_input("--read-script: TRL's configurations are YAML files; leave it out");
  BRAID_ASSIGN(const std::string text, read_file(inputs.front()));
  BRAID_ASSIGN(ForeignKeys keys, trl_configuration(text, inputs.front()));
  BRAID_TRY(add_overrides({inputs.begin() + 1, inputs.end()}, &keys));
  return keys;
}

// Errors: what came out is no configuration that could run; it is written all the same.
Status convert(const ConfigArguments& arguments, const std::vector<std::string>& inputs) {
  if (inputs.empty())
    return invalid_input(cat("--from ", arguments.from, ": name the configuration to read"));
  BRAID_TRY(check_outputs({{"--out", arguments.out}}));
  const ConvertOptions options{arguments.from, arguments.algorithm, algorithm_names()};
  if (!options.algorithm.empty() && !contains(options.algorithms, options.algorithm))
    return invalid_input(
        cat("--algorithm: '", options.algorithm, "' is none of ", join(options.algorithms, ", ")));
  BRAID_ASSIGN(const ForeignKeys keys, foreign_keys(arguments, inputs));
  BRAID_ASSIGN(const Conversion conversion, convert_config(keys, options));
  const std::string text = conversion_text(conversion, options, inputs.front());
  if (arguments.out.empty())
    std::printf("%s", text.c_str());
  else
    BRAID_TRY(write_file_atomic(arguments.out, text));
  std::fflush(stdout);  // what is said of it comes behind it, also where both go into one file
  for (const std::string& warning : conversion_warnings(conversion)) log_warning(warning);
  ConfigSources sources;
  sources.algorithms = options.algorithms;
  sources.files.emplace_back(arguments.out.empty() ? "what came out" : arguments.out, text);
  BRAID_ASSIGN(const LoadedConfig loaded, load_checked(sources));
  BRAID_TRY(batch_arithmetic(loaded.config).status());
  log_info(conversion_end(conversion));
  return ok_status();
}

Status print_config(const ConfigArguments& arguments, const std::vector<std::string>& inputs) {
  if (arguments.list) {
    std::printf("%s", configuration_table().c_str());
    return ok_status();
  }
  if (!arguments.from.empty()) return convert(arguments, inputs);
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  if (loaded.config.plan.graph.empty())  // else the file says which calls there are
    BRAID_TRY(at_place(loaded.resolved, make_graph(loaded.config.algorithm).status()));
  if (arguments.resolve) {
    std::printf("%s", yaml_text(loaded.resolved, true).c_str());
    return ok_status();
  }
  BRAID_ASSIGN(const BatchArithmetic arithmetic, batch_arithmetic(loaded.config));
  std::printf("%s\n", arithmetic_text(loaded.config, arithmetic).c_str());
  return ok_status();
}

Action define_config(CLI::App& app) {
  auto arguments = std::make_shared<ConfigArguments>();
  take_config_inputs(app);
  app.add_flag("--resolve", arguments->resolve, "print every key with its value and origin");
  app.add_flag("--list", arguments->list, "print the table of all keys with their meaning");
  CLI::Option* from =
      app.add_option("--from", arguments->from,
                     "trl | verl | openrlhf: print what a configuration of theirs is here; INPUTS "
                     "are its file (YAML, arguments or a launch script) and key=value of theirs");
  app.add_option("--algorithm", arguments->algorithm,
                 "with --from: algorithm.name, which TRL's files do not say")
      ->needs(from);
  app.add_option("--out", arguments->out, "with --from: the file to write; else standard output")
      ->needs(from);
  app.add_option("--read-script", arguments->read_script,
                 "with --from: how a launch script is read: sandbox | text")
      ->needs(from);
  return [arguments, &app] { return print_config(*arguments, app.remaining()); };
}

}  // namespace

extern const Command kConfigCommand{
    "config", "check a configuration and print it (docs/configuration.md)", define_config};

}  // namespace braid
