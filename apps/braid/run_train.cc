// braid train | sft | rm: loads the configuration, compiles the program and runs it step by step.
#include <chrono>
#include <cstdio>

#include "algo/algorithm.h"
#include "base/log.h"
#include "base/text.h"
#include "commands.h"
#include "config/load.h"
#include "host/file.h"
#include "report/metrics_log.h"
#include "run_commands.h"
#include "runtime/run_keeper.h"
#include "runtime/session.h"
#include "runtime/stop_signal.h"

namespace braid {
namespace {

using MetricsRow = std::map<std::string, double>;

// Of the checkpoint and export after the step before: a row is written before its own.
constexpr const char* kCheckpointTime = "time/checkpoint";

struct TrainArguments {
  bool print_program = false;
  bool dry_run = false;
};

// One step and everything that it writes. Returns whether its state is in a checkpoint.
Result<bool> train_step(const Config& config, Session& session, MetricsLog& log, MetricsRow& row) {
  using Clock = std::chrono::steady_clock;
  const int64_t step = session.step();
  const double checkpoint_s = row.count(kCheckpointTime) > 0 ? row[kCheckpointTime] : 0;
  BRAID_ASSIGN(row, session.run_step());
  row[kCheckpointTime] = checkpoint_s;
  BRAID_TRY(log.write(step, row));
  if (config.log.samples_every > 0 && step % config.log.samples_every == 0)
    for (const Json& sample : session.sample_rows(3)) BRAID_TRY(log.write_sample(sample));
  const auto begin = Clock::now();
  BRAID_ASSIGN(const bool saved, keep_step(config, session, row));
  row[kCheckpointTime] = std::chrono::duration<double>(Clock::now() - begin).count();
  return saved;
}

Status stopped(const Config& config, const Session& session, const std::string& signal) {
  return {Code::kStopped, cat("stopped by ", signal, " after step ", session.step(), " of ",
                              config.train.total_steps,
                              "; everything is in the last checkpoint, continue with "
                              "checkpoint.resume=auto")};
}

Status train_loop(const Config& config, Session& session, const std::string& folder) {
  MetricsLogOptions options;
  options.folder = folder;
  options.jsonl = config.log.jsonl;
  options.console = config.log.console;
  options.total_steps = config.train.total_steps;
  BRAID_ASSIGN(MetricsLog log, MetricsLog::open(options, session.step()));
  catch_stop_signals();
  MetricsRow row;
  bool saved = true;
  while (session.step() < config.train.total_steps && stop_signal().empty()) {
    BRAID_ASSIGN(saved, train_step(config, session, log, row));
  }
  if (!saved) BRAID_TRY(save_session(config, session, row).status());
  if (!stop_signal().empty() && session.step() < config.train.total_steps)
    return stopped(config, session, stop_signal());
  return session.export_models(join_path(folder, "export"));
}

Status train(const TrainArguments& arguments, std::vector<std::string> inputs,
             const std::string& algorithm) {
  if (!algorithm.empty()) inputs.push_back("algorithm.name=" + algorithm);
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  const Config& config = loaded.config;
  BRAID_ASSIGN(const Graph graph, make_graph(config.algorithm));
  BRAID_ASSIGN(const Program program, compile(graph));
  if (arguments.print_program) {
    std::printf("%shash %s\n", program_text(program).c_str(), program_hash(program).c_str());
    return ok_status();
  }
  const auto arithmetic = batch_arithmetic(config);
  BRAID_TRY(at_place(loaded.resolved, arithmetic.status()));
  log_info(arithmetic_text(config, *arithmetic));
  BRAID_TRY(check_run_state(config, graph));
  if (arguments.dry_run) return check_run_inputs(config, graph);
  BRAID_ASSIGN(const FileHandle claim, claim_run_folder(config));
  BRAID_ASSIGN(std::unique_ptr<Session> session, Session::create(config, program));
  BRAID_TRY(resume_session(config, *session));
  const std::string folder = run_folder(config);
  BRAID_TRY(write_file_atomic(join_path(folder, "config.yaml"), yaml_text(loaded.resolved)));
  BRAID_TRY(train_loop(config, *session, folder));
  log_info("done; metrics, samples and the exported model are in " + folder);
  return ok_status();
}

Action define_with(CLI::App& app, const std::string& algorithm) {
  auto arguments = std::make_shared<TrainArguments>();
  take_config_inputs(app);
  app.add_flag("--print-program", arguments->print_program, "print the instruction list and stop");
  app.add_flag("--dry-run", arguments->dry_run,
               "check everything but weights and print the batch arithmetic");
  return [arguments, algorithm, &app] { return train(*arguments, app.remaining(), algorithm); };
}

}  // namespace

extern const Command kTrainCommand{"train", "train with the algorithm of the configuration",
                                   [](CLI::App& app) { return define_with(app, ""); }};
extern const Command kSftCommand{"sft", "supervised fine-tuning: train with algorithm.name=sft",
                                 [](CLI::App& app) { return define_with(app, "sft"); }};
extern const Command kRmCommand{"rm", "train a reward model: train with algorithm.name=rm",
                                [](CLI::App& app) { return define_with(app, "rm"); }};

}  // namespace braid
