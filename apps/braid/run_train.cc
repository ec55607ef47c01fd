// braid train | sft | rm: loads the configuration, compiles the program and runs it step by step.
#include <cstdio>
#include <cstdlib>

#include "algo/algorithm.h"
#include "base/log.h"
#include "commands.h"
#include "config/load.h"
#include "host/file.h"
#include "report/metrics_log.h"
#include "run_commands.h"
#include "runtime/session.h"

namespace braid {
namespace {

struct TrainArguments {
  std::vector<std::string> inputs;  // files, then key=value
  bool print_program = false;
  bool dry_run = false;
};

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Status train_loop(const Config& config, Session& session, const std::string& folder) {
  const MetricsLogOptions options{folder, config.log.jsonl, config.log.console,
                                  config.train.total_steps};
  BRAID_ASSIGN(MetricsLog log, MetricsLog::open(options, session.step()));
  while (session.step() < config.train.total_steps) {
    const int64_t step = session.step();
    BRAID_ASSIGN(const auto row, session.run_step());
    BRAID_TRY(log.write(step, row));
    if (config.log.samples_every > 0 && step % config.log.samples_every == 0)
      for (const Json& sample : session.sample_rows(3)) BRAID_TRY(log.write_sample(sample));
  }
  return session.export_models(join_path(folder, "export"));
}

Status train(const TrainArguments& arguments, const std::string& algorithm) {
  std::vector<std::string> inputs = arguments.inputs;
  if (!algorithm.empty()) inputs.push_back("algorithm.name=" + algorithm);
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  const Config& config = loaded.config;
  BRAID_ASSIGN(const Graph graph, make_graph(config.algorithm));
  BRAID_ASSIGN(const Program program, compile(graph));
  if (arguments.print_program) {
    std::printf("%shash %s\n", program_text(program).c_str(), program_hash(program).c_str());
    return ok_status();
  }
  BRAID_ASSIGN(const BatchArithmetic arithmetic, batch_arithmetic(config));
  log_info(arithmetic_text(config, arithmetic));
  if (arguments.dry_run) return ok_status();
  BRAID_ASSIGN(std::unique_ptr<Session> session, Session::create(config, program));
  const std::string folder = join_path(config.run.dir, config.run.name);
  BRAID_TRY(make_folder(folder));
  BRAID_TRY(write_file_atomic(join_path(folder, "config.yaml"), yaml_text(loaded.resolved)));
  BRAID_TRY(train_loop(config, *session, folder));
  log_info("done; metrics, samples and the exported model are in " + folder);
  return ok_status();
}

Action define_with(CLI::App& app, const std::string& algorithm) {
  auto arguments = std::make_shared<TrainArguments>();
  app.add_option("inputs", arguments->inputs, "configuration files, then key.sub=value overrides")
      ->required();
  app.add_flag("--print-program", arguments->print_program, "print the instruction list and stop");
  app.add_flag("--dry-run", arguments->dry_run,
               "check the configuration and print the batch arithmetic");
  return [arguments, algorithm] { return train(*arguments, algorithm); };
}

Status print_config(const std::vector<std::string>& inputs) {
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  std::printf("%s", yaml_text(loaded.resolved, true).c_str());
  return ok_status();
}

Action define_config(CLI::App& app) {
  auto inputs = std::make_shared<std::vector<std::string>>();
  auto resolve = std::make_shared<bool>(false);
  app.add_option("inputs", *inputs, "configuration files, then key.sub=value overrides")
      ->required();
  app.add_flag("--resolve", *resolve, "print every key with its value and origin");
  return [inputs, resolve] { return print_config(*inputs); };
}

}  // namespace

Result<LoadedConfig> load_config_arguments(const std::vector<std::string>& inputs) {
  ConfigSources sources;
  sources.environment = environment;
  sources.algorithm_defaults = default_options;
  for (const std::string& input : inputs) {
    const bool file = path_exists(input);
    if (!file && input.find('=') != std::string::npos) {
      sources.overrides.push_back(input.rfind("--", 0) == 0 ? input.substr(2) : input);
      continue;
    }
    BRAID_ASSIGN(std::string text, read_file(input));
    sources.files.emplace_back(input, std::move(text));
  }
  return load_config(sources);
}

extern const Command kTrainCommand{"train", "train with the algorithm of the configuration",
                                   [](CLI::App& app) { return define_with(app, ""); }};
extern const Command kSftCommand{"sft", "supervised fine-tuning: train with algorithm.name=sft",
                                 [](CLI::App& app) { return define_with(app, "sft"); }};
extern const Command kRmCommand{"rm", "train a reward model: train with algorithm.name=rm",
                                [](CLI::App& app) { return define_with(app, "rm"); }};
extern const Command kConfigCommand{"config", "check a configuration and print it", define_config};

}  // namespace braid
