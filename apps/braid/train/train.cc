// braid train | sft | rm: loads the configuration, compiles the program and runs it step by step.
#include <unistd.h>

#include <cstdio>

#include "algo/algorithm.h"
#include "base/log.h"
#include "base/text.h"
#include "braid/data/inputs.h"
#include "braid/engine_options.h"
#include "braid/outputs.h"
#include "braid/program.h"
#include "braid/train/about.h"
#include "braid/train/emulated.h"
#include "braid/train/notes.h"
#include "config/load.h"
#include "host/clock.h"
#include "host/file.h"
#include "host/stop_signal.h"
#include "identity/input_claims.h"
#include "launch/job.h"
#include "launch/smoke.h"
#include "plan/make_problem.h"
#include "predict/prediction.h"
#include "report/metrics_log.h"
#include "report/run_page.h"
#include "report/warning_log.h"
#include "run/idle_watch.h"
#include "run/kernel_choices.h"
#include "run/run_keeper.h"
#include "run/train_loop.h"
#include "samples/step_metrics.h"
#include "session/check_models.h"
#include "session/session.h"

namespace braid {
namespace {

Result<MetricsLogOptions> log_options(const Config& config, const std::string& folder) {
  MetricsLogOptions out;
  out.folder = folder;
  out.jsonl = config.log.jsonl;
  out.console = config.log.console;
  out.names = config.log.names;
  out.total_steps = config.train.total_steps;
  out.tensorboard = config.log.tensorboard;
  BRAID_ASSIGN(out.commands, log_commands(config));
  return out;
}

// The page of what the run has written so far; whether there is one. It is an extra: where it fails
// the run has not.
bool write_page(const Config& config) {
  if (!config.report.html || !config.log.jsonl) return false;
  const Status written = write_run_page(run_folder(config));
  if (!written.ok() && written.code() != Code::kNotFound)
    log_warning(cat("report.html: no page of this run: ", written.message()));
  return written.ok();
}

// A plan for GPUs runs on processors too, but what is predicted is not of them.
void warn_of_other_devices(const PlannedRun& planned) {
  if (!planned.problem || planned.config.device != "cpu") return;
  const GpuSpec& gpu = planned.problem->cluster.nodes.front().gpu;
  if (gpu.architecture != "cpu")
    log_warning(cat("cluster: prices are those of ", gpu.key,
                    ", and device is cpu: what is predicted is not what this machine takes; for it "
                    "write gpu: this-machine, or its profile ('braid profile')"));
}

// Memory that does not even take the models is no matter of what a step takes.
Status load_models(const Config& config, const Program& program, World* world,
                   std::unique_ptr<Session>* session) {
  const Status loaded = guarded([&] {
    BRAID_ASSIGN(*session, Session::create(config, program, world));
    return ok_status();
  });
  if (loaded.code() != Code::kOutOfMemory) return loaded;
  const std::string& text = loaded.message();
  return {
      Code::kInfeasible,
      cat("while the models load: ", text.substr(0, text.find(';')),
          "; more memory (train.memory_limit_gib says what may be taken), more ranks that share "
          "the weights (parallel) or model.dtype=bf16 would help")};
}

struct RunStart {
  LoadedConfig loaded;
  PlannedRun planned;
  ResumedCheckpoint resumed;
  const TrainArguments& arguments;
  WarningLog& warnings;
};

// The resolved configuration, and what a report tells of the run.
Status write_what_runs(const LoadedConfig& loaded, const PlannedRun& planned,
                       const std::string& folder) {
  BRAID_TRY(write_file_atomic(join_path(folder, "config.yaml"), yaml_text(loaded.resolved)));
  return write_file_atomic(
      join_path(folder, kAboutFile),
      about_run(loaded, planned).dump(2, ' ', false, Json::error_handler_t::replace));
}

// Whatever ended it: the page shows what was done, beside what was predicted of it.
Status tell_end(const Config& config, const Session& session, const Status& ended,
                RunPrediction& prediction) {
  const std::string folder = run_folder(config);
  const auto told = prediction.write(session.saving_peaks());
  if (told.ok()) std::fputs(told->c_str(), stderr);
  const std::string page = write_page(config) ? join_path(folder, kRunPageName) : "";
  if (!ended.ok() && !page.empty()) log_info("what was done is shown in " + page);
  BRAID_TRY(ended);
  BRAID_TRY(told.status());
  prediction.end_search();
  log_info(cat("done; metrics, samples and the exported model are in ", folder,
               page.empty() ? "" : cat("; the page of the run is ", page)));
  return ok_status();
}

// What a rank holds to its end. The session goes first, which may still write to the folders.
struct HeldRun {
  RunClaim claim;
  std::unique_ptr<Session> session;
};

// Which rank's work this process does, and what only one rank of a job does: files and console.
// `together` becomes whether all ranks have come to their end, also where a signal stopped them.
Status run_steps(RunStart& start, World* world, bool* together, HeldRun& held) {
  auto& [loaded, planned, resumed, arguments, warnings] = start;
  std::unique_ptr<Session>& session = held.session;
  BRAID_ASSIGN(planned.config.data.template_date, run_date(planned.config, resumed, world));
  BRAID_TRY(set_yaml_path(loaded.resolved, "data.template_date", planned.config.data.template_date,
                          "the run"));
  const Config& config = planned.config;
  const Program& program = planned.program;
  const bool leads = world == nullptr || world->global_rank() == 0;
  BRAID_ASSIGN(const auto kernels, KernelChoices::begin(config, resumed, world));
  MetricsLogOptions options;
  if (leads) {
    BRAID_ASSIGN(options, log_options(config, run_folder(config)));
    BRAID_TRY(check_eval_data(config));
  }
  BRAID_TRY(load_models(config, program, world, &session));
  if (leads) {
    BRAID_ASSIGN(held.claim, claim_run(config, resumed));
  }
  if (world != nullptr) {
    BRAID_TRY(agree_on_data(*world, session->data()));
    BRAID_TRY(agree_on_run_folder(*world, config));
  }
  const auto continued = resume_session(std::move(resumed), *session);
  *together = session->failed_alike();
  BRAID_ASSIGN(const MetricsRow row, continued);
  catch_stop_signals();
  const Status rehearsed = session->rehearse();
  *together = session->failed_alike();
  BRAID_TRY(rehearsed);
  if (!leads) {
    const Status followed = session->follow();
    *together = followed.ok();
    return followed.ok() ? followed : after_lost_ranks(config, followed);
  }
  BRAID_TRY(
      guarded([&] { return check_checkpoint_space(config, *session); }).at("room for checkpoints"));
  // What could still refuse the run comes before what an earlier one left goes.
  warn_of_lost_checkpoints(config, *session);
  BRAID_ASSIGN(MetricsLog log, MetricsLog::open(options, session->step()));
  BRAID_TRY(begin_run(config));
  const std::string folder = run_folder(config);
  BRAID_TRY(write_what_runs(loaded, planned, folder));
  BRAID_TRY(warnings.open(folder, session->step()));
  SaveSchedule schedule(config.checkpoint, now_s());
  RunPrediction prediction(planned);
  IdleWatch idle(config, program.graph);
  const auto noted = [&](const MetricsRow& step) { prediction.note(*session, step); };
  const Status ended = train_loop(
      {config, *session, schedule, program, arguments.order, idle, warnings, noted}, log, row);
  *together = session->dismissed();
  return tell_end(config, *session, ended, prediction);
}

// A rank that fails alone tells the others before it waits for its checkpoint: they wait for it.
// What it writes beside the steps has no end then that somebody would wait for: they end, as told.
Status run_rank(RunStart start, World* world, bool* together) {
  HeldRun held;
  const Status ended = guarded([&] { return run_steps(start, world, together, held); });
  const bool alone = world != nullptr && !ended.ok() && !*together && !world->refused();
  if (!alone) return ended;
  const Status told = world->fail(ended);
  if (held.session == nullptr || !held.session->saves_open()) return told;
  const int code = finish(told);
  std::fflush(nullptr);
  ::_exit(code);
}

// Needs no weights, unless a plan is stated.
Status print_configured_program(const Config& config) {
  BRAID_ASSIGN(const PlannedRun planned, plan_run(config));
  print_program(planned);
  return ok_status();
}

// The configuration with tiny models and sizes. The ranks that 'braid' starts find the models
// there.
Result<LoadedConfig> smoke_config(LoadedConfig loaded, std::vector<std::string> inputs) {
  BRAID_ASSIGN(const auto membership, read_membership(process_environment()));
  if (membership && membership->started_by != kOwnLauncher)
    return invalid_input(cat("--smoke: ", membership->started_by,
                             " started this rank; 'braid train' starts its ranks itself"));
  BRAID_ASSIGN(const Smoke smoke, make_smoke(loaded, !membership));
  for (const std::string& note : smoke.notes)
    if (!membership) log_info(cat("smoke: ", note));
  inputs.insert(inputs.end(), smoke.overrides.begin(), smoke.overrides.end());
  BRAID_ASSIGN(loaded, load_config_arguments(inputs));
  use_scorer(smoke, &loaded);
  return loaded;
}

// `meets` becomes true where the ranks of the job hear of each other's faults from then on.
Status train_here(const TrainArguments& arguments, std::vector<std::string> inputs,
                  const std::string& algorithm, const std::optional<Membership>& membership,
                  bool* meets) {
  if (!algorithm.empty()) inputs.push_back("algorithm.name=" + algorithm);
  BRAID_TRY(check_outputs({{"--order", arguments.order}}));
  BRAID_ASSIGN(LoadedConfig loaded, load_config_arguments(inputs));
  if (arguments.smoke) {
    BRAID_ASSIGN(loaded, smoke_config(std::move(loaded), inputs));
  }
  if (loaded.config.device == "emulated") {
    *meets = true;
    return train_emulated(arguments, loaded);
  }
  if (arguments.print_program) return print_configured_program(loaded.config);
  BRAID_TRY(check_trainable(loaded.config));
  BRAID_ASSIGN(const Config local, local_config(loaded.config));
  BRAID_ASSIGN(const PlannedRun planned, plan_run(local, membership));
  const Config& config = planned.config;
  const Graph& graph = planned.program.graph;
  const auto arithmetic = batch_arithmetic(loaded.config);
  BRAID_TRY(at_place(loaded.resolved, arithmetic.status()));
  BRAID_TRY(check_executable(planned.program));
  BRAID_TRY(check_functions(graph));
  BRAID_ASSIGN(ResumedCheckpoint resumed,
               check_run_state(config, graph, !membership || membership->global_rank == 0));
  WarningLog warnings;
  const auto ranks = static_cast<int64_t>(planned.program.ranks.size());
  if (membership && membership->world_size != ranks)
    return invalid_input(cat("the plan is for ", ranks, " devices, but ", membership->started_by,
                             " started ", membership->world_size,
                             " processes; start one process per device, or plan for ",
                             membership->world_size));
  if (ranks > 1) BRAID_TRY(check_shared_data(config, ranks));
  const bool launches = !membership && ranks > 1 && !arguments.dry_run;
  if (launches) return launch_ranks(planned);
  if (!membership || membership->global_rank == 0) {
    log_info(arithmetic_text(config, *arithmetic));
    if (generates(graph)) log_info(algorithm_text(config.algorithm));
    const RunFacts facts{loaded.config, graph, planned.plan ? &*planned.plan : nullptr,
                         planned.priced};
    for (const std::string& note : config_notes(loaded, facts, *arithmetic)) log_warning(note);
    warn_of_other_devices(planned);
  }
  if (arguments.dry_run) {
    Config dated = config;
    BRAID_ASSIGN(dated.data.template_date, run_date(config, resumed, nullptr));
    BRAID_TRY(check_run_inputs(dated, graph));
    log_info("--dry-run: nothing wrong was found, and nothing was trained");
    return ok_status();
  }
  bool together = false;
  if (!membership || membership->world_size == 1)
    return run_rank({loaded, planned, std::move(resumed), arguments, warnings}, nullptr, &together);
  *meets = true;
  return join_job(*membership, planned, loaded, [&](World& world, bool* all) {
    BRAID_TRY(agree_on_inputs(world, config, graph, resumed));
    return run_rank({loaded, planned, std::move(resumed), arguments, warnings}, &world, all);
  });
}

// What a rank finds before it meets the others, perhaps alone, is told to them.
Status train(const TrainArguments& arguments, const std::vector<std::string>& inputs,
             const std::string& algorithm) {
  BRAID_ASSIGN(const auto membership, read_membership(process_environment()));
  bool meets = false;
  const Status ended = train_here(arguments, inputs, algorithm, membership, &meets);
  const bool unheard = membership && !ended.ok() && !meets;
  return unheard ? World::fail_before_join(*membership, ended) : ended;
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
