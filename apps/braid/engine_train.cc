// braid train | sft | rm: loads the configuration, compiles the program and runs it step by step.
#include <chrono>
#include <cstdio>
#include <fstream>

#include "algo/algorithm.h"
#include "base/log.h"
#include "base/text.h"
#include "config/load.h"
#include "engine_options.h"
#include "host/file.h"
#include "plan/make_problem.h"
#include "report/metrics_log.h"
#include "run_commands.h"
#include "runtime/evaluate.h"
#include "runtime/run_keeper.h"
#include "runtime/session.h"
#include "runtime/stop_signal.h"

namespace braid {
namespace {

// Of the checkpoint and export after the step before: a row is written before its own.
constexpr const char* kCheckpointTime = "time/checkpoint";

struct Run {
  const Config& config;
  Session& session;
  Evaluator* evaluator;  // null without eval.*
  SaveSchedule& schedule;
  const Program& program;
  std::string order;  // file for the instructions of each step; "" = none
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Status stopped(const Config& config, const Session& session, const std::string& signal) {
  return {Code::kStopped, cat("stopped by ", signal, " after step ", session.step(), " of ",
                              config.train.total_steps,
                              "; everything is in the last checkpoint, continue with "
                              "checkpoint.resume=auto")};
}

MetricsLogOptions log_options(const Config& config, const std::string& folder) {
  MetricsLogOptions out;
  out.folder = folder;
  out.jsonl = config.log.jsonl;
  out.console = config.log.console;
  out.total_steps = config.train.total_steps;
  out.tensorboard = config.log.tensorboard;
  out.command = {config.log.command, config.log.command_timeout_s,
                 config.log.command_on_error == "stop"};
  return out;
}

// Evaluates the policy into a row of metrics.
Status evaluate(Evaluator& evaluator, Session& session, MetricsRow& row) {
  const double begin_s = now_s();
  BRAID_ASSIGN(const EvalReport report, evaluator.run(*session.roles().at("actor").model));
  row.insert(report.metrics.begin(), report.metrics.end());
  row["time/eval"] = now_s() - begin_s;
  return ok_status();
}

// The evaluator that eval.* asks for; null for none.
Result<std::unique_ptr<Evaluator>> make_evaluator(const Config& config, const Session& session) {
  if (config.eval.every_steps == 0 && !config.eval.at_start) return std::unique_ptr<Evaluator>();
  if (session.roles().count("actor") == 0)
    return invalid_input(cat("eval.every_steps, eval.at_start: algorithm ", config.algorithm.name,
                             " trains no policy that could answer; remove them"));
  RewardModels models = share_reward_models(session.reward_models());
  if (!config.rollout.replay.empty()) {
    BRAID_ASSIGN(models, load_reward_models(config, session.roles()));
  }
  return Evaluator::create(config, std::move(models));
}

// One step; appends its instructions, in the order in which they were executed, to a file.
Result<MetricsRow> run_recorded_step(const Run& run) {
  std::string executed = cat("step ", run.session.step(), "\n");
  BRAID_ASSIGN(MetricsRow row, run.session.run_step([&](size_t index) {
    executed += executed_instruction(run.program, 0, index);
  }));
  std::ofstream out(run.order, std::ios::app);
  out << executed << std::flush;
  if (!out) return io_error(cat("--order ", run.order, ": cannot write"));
  return row;
}

// One step and everything that it writes. Returns whether its state is in a checkpoint.
Result<bool> train_step(const Run& run, MetricsLog& log, MetricsRow& row) {
  const auto& [config, session, evaluator, schedule, program, order] = run;
  const int64_t step = session.step();
  const double checkpoint_s = row.count(kCheckpointTime) > 0 ? row[kCheckpointTime] : 0;
  BRAID_ASSIGN(row, order.empty() ? session.run_step() : run_recorded_step(run));
  row[kCheckpointTime] = checkpoint_s;
  if (config.eval.every_steps > 0 && (step + 1) % config.eval.every_steps == 0)
    BRAID_TRY(evaluate(*evaluator, session, row));
  BRAID_TRY(log.write(step, row));
  if (config.log.samples_every > 0 && step % config.log.samples_every == 0)
    for (const Json& sample : session.sample_rows(3)) BRAID_TRY(log.write_sample(sample));
  const double begin_s = now_s();
  BRAID_ASSIGN(const bool saved, keep_step(config, session, row, schedule, begin_s));
  row[kCheckpointTime] = now_s() - begin_s;
  return saved;
}

// Steps until the end or a stop signal; then the last checkpoint, and at the end the export.
Status train_loop(const Run& run, const std::string& folder) {
  const auto& [config, session, evaluator, schedule, program, order] = run;
  BRAID_ASSIGN(MetricsLog log, MetricsLog::open(log_options(config, folder), session.step()));
  MetricsRow row;
  if (config.eval.at_start && session.step() == 0) {
    BRAID_TRY(evaluate(*evaluator, session, row));
    BRAID_TRY(log.write(-1, row));
  }
  catch_stop_signals();
  bool saved = true;
  while (session.step() < config.train.total_steps && stop_signal().empty()) {
    BRAID_ASSIGN(saved, train_step(run, log, row));
  }
  if (!saved) BRAID_TRY(save_session(config, session, row).status());
  if (session.step() == config.train.total_steps)
    BRAID_TRY(session.export_models(join_path(folder, "export")));
  BRAID_TRY(log.finish());
  return session.step() == config.train.total_steps ? ok_status()
                                                    : stopped(config, session, stop_signal());
}

// The program of the algorithm's graph. Keys that plan for more devices than one are refused:
// one process runs everything.
Result<Program> program_of(const Config& config) {
  if (!config.plan.graph.empty())
    return invalid_input(
        "plan.graph: training runs the graph of algorithm.name; own graphs are for planning");
  const bool stated = config.cluster.kind != YamlNode::Kind::kNull ||
                      config.placement.kind != YamlNode::Kind::kNull ||
                      config.parallel.kind != YamlNode::Kind::kNull || !config.plan.file.empty() ||
                      !config.plan.graph.empty();
  if (stated) {
    BRAID_ASSIGN(const PlanningProblem problem, make_problem(config, file_reader()));
    BRAID_ASSIGN(const auto plan, configured_plan(config, problem, file_reader()));
    const int devices = plan ? plan->devices : device_count(problem.cluster);
    if (devices != 1)
      return invalid_input(cat("cluster, placement, parallel, plan: they describe ", devices,
                               " devices; training runs in one process on one device. 'braid plan' "
                               "and 'braid simulate' take them; remove them to train here"));
  }
  BRAID_ASSIGN(const Graph graph, configured_graph(config));
  return compile(graph);
}

Status train(const TrainArguments& arguments, std::vector<std::string> inputs,
             const std::string& algorithm) {
  if (!algorithm.empty()) inputs.push_back("algorithm.name=" + algorithm);
  BRAID_ASSIGN(const LoadedConfig loaded, load_config_arguments(inputs));
  BRAID_ASSIGN(const Program program, program_of(loaded.config));
  const Graph& graph = program.graph;
  if (arguments.print_program) {
    std::printf("%shash %s\n", program_text(program).c_str(), program_hash(program).c_str());
    return ok_status();
  }
  const auto arithmetic = batch_arithmetic(loaded.config);
  BRAID_TRY(at_place(loaded.resolved, arithmetic.status()));
  BRAID_ASSIGN(const Config config, local_config(loaded.config));
  log_info(arithmetic_text(config, *arithmetic));
  if (generates(graph)) log_info(algorithm_text(config.algorithm));
  BRAID_TRY(check_functions(graph));
  BRAID_TRY(check_run_state(config, graph));
  if (arguments.dry_run) return check_run_inputs(config, graph);
  BRAID_TRY(restore_kernel_choices(config));
  BRAID_TRY(check_eval_data(config));
  BRAID_ASSIGN(std::unique_ptr<Session> session, Session::create(config, program));
  BRAID_ASSIGN(const FileHandle claim, claim_run_folder(config));
  BRAID_TRY(resume_session(config, *session));
  BRAID_TRY(check_checkpoint_space(config, *session));
  const std::string folder = run_folder(config);
  BRAID_TRY(write_file_atomic(join_path(folder, "config.yaml"), yaml_text(loaded.resolved)));
  BRAID_ASSIGN(const std::unique_ptr<Evaluator> evaluator, make_evaluator(config, *session));
  SaveSchedule schedule(config.checkpoint, now_s());
  BRAID_TRY(
      train_loop({config, *session, evaluator.get(), schedule, program, arguments.order}, folder));
  log_info("done; metrics, samples and the exported model are in " + folder);
  return ok_status();
}

EngineCommand<TrainArguments>::Act train_with(const std::string& algorithm) {
  return [algorithm](const TrainArguments& arguments, const std::vector<std::string>& inputs) {
    return train(arguments, inputs, algorithm);
  };
}

}  // namespace

extern const Command kTrainCommand = kTrain.with(train_with(""));
extern const Command kSftCommand = kSft.with(train_with("sft"));
extern const Command kRmCommand = kRm.with(train_with("rm"));

}  // namespace braid
