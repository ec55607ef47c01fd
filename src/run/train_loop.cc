#include "run/train_loop.h"

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/run_folder.h"
#include "host/clock.h"
#include "host/file.h"
#include "host/stop_signal.h"
#include "interpret/interpreter.h"
#include "samples/step_metrics.h"

namespace braid::inline run {
namespace {

// Of the checkpoint and export after the step before: a row is written before its own.
constexpr const char* kCheckpointTime = "time/checkpoint";

Status stopped(const Config& config, const Session& session, const std::string& cause) {
  return {Code::kStopped, cat("stopped by ", cause, " after step ", session.step(), " of ",
                              config.train.total_steps,
                              "; everything is in the last checkpoint, continue with "
                              "checkpoint.resume=auto")};
}

// A job of several ranks stops after the step in which any of them was asked to: all know of it
// then.
std::string stop_request(const Session& session) {
  return session.ranks() > 1 ? session.stop_request() : stop_signal();
}

// Evaluates the policy into a row of metrics.
Status evaluate(Session& session, MetricsRow& row) {
  const double begin_s = now_s();
  BRAID_ASSIGN(const EvalReport report, session.evaluate());
  row.insert(report.metrics.begin(), report.metrics.end());
  row["time/eval"] = now_s() - begin_s;
  return ok_status();
}

// One step; appends its instructions, in the order in which they were executed, to a file.
Result<MetricsRow> run_recorded_step(const TrainLoop& run) {
  std::string executed = cat("step ", run.session.step(), "\n");
  BRAID_ASSIGN(MetricsRow row, run.session.run_step([&](size_t index) {
    executed += executed_instruction(run.program, 0, index);
  }));
  BRAID_TRY(append_file(run.order, executed).at("--order"));
  return row;
}

// One step and everything that it writes; `row` becomes its row, `saved` whether its state is in a
// checkpoint.
Status train_step(const TrainLoop& run, MetricsLog& log, MetricsRow& row, bool& saved) {
  const auto& [config, session, schedule, program, order, idle, warnings, noted] = run;
  const int64_t step = session.step();
  warnings.begin_step(step);
  const double checkpoint_s = row.count(kCheckpointTime) > 0 ? row[kCheckpointTime] : 0;
  BRAID_ASSIGN(row, order.empty() ? session.run_step() : run_recorded_step(run));
  saved = false;
  noted(row);
  row[kCheckpointTime] = checkpoint_s;
  Status evaluated;
  if (config.eval.every_steps > 0 && (step + 1) % config.eval.every_steps == 0)
    evaluated = evaluate(session, row);
  BRAID_TRY(log.write(step, row));  // also where the evaluation failed: the step is complete
  if (const std::string warning = idle.note(step, row); !warning.empty()) log_warning(warning);
  BRAID_TRY(evaluated);
  if (const Json record = session.step_record(); !record.is_null())
    BRAID_TRY(log.write_ranks(record));
  if (config.log.samples_every > 0 && step % config.log.samples_every == 0) {
    BRAID_ASSIGN(const std::vector<Json> samples, session.sample_rows(kShownSamples));
    for (const Json& sample : samples) BRAID_TRY(log.write_sample(sample));
  }
  const double begin_s = now_s();
  BRAID_ASSIGN(saved, keep_step(config, session, row, schedule, begin_s));
  row[kCheckpointTime] = now_s() - begin_s;
  return ok_status();
}

// After the last step, or a stop signal: the last checkpoint, and at the end the export.
Status finish_run(const TrainLoop& run, MetricsLog& log, const MetricsRow& row, bool& saved) {
  const auto& [config, session, schedule, program, order, idle, warnings, noted] = run;
  if (!saved) BRAID_TRY(save_session(config, session, row));
  saved = false;  // it may have been begun only
  BRAID_TRY(session.finish_saves());
  saved = true;
  if (session.step() == config.train.total_steps)
    BRAID_TRY(session.export_models(join_path(run_folder(config), "export")));
  return log.finish();
}

}  // namespace

Status train_loop(const TrainLoop& run, MetricsLog& log, MetricsRow row) {
  const auto& [config, session, schedule, program, order, idle, warnings, noted] = run;
  if (config.eval.at_start && session.step() == 0) {
    BRAID_TRY(evaluate(session, row));
    BRAID_TRY(log.write(-1, row));
  }
  // A step is in a checkpoint but not in the log where writing that had failed.
  const int64_t last = session.step() - 1;
  if (config.log.jsonl && !row.empty() && log.last_step() < last) BRAID_TRY(log.write(last, row));
  catch_stop_signals();
  bool saved = true;
  Status failure;
  const auto goes_on = [&run] {
    return run.session.step() < run.config.train.total_steps && run.idle.status().ok() &&
           stop_request(run.session).empty();
  };
  while (failure.ok() && goes_on())
    failure = guarded([&] { return train_step(run, log, row, saved); });
  if (failure.ok()) failure = guarded([&] { return finish_run(run, log, row, saved); });
  if (!failure.ok() && session.ranks() > 1 && !session.others_wait())
    return after_lost_ranks(config, failure);
  if (!failure.ok()) {
    const Status kept = save_after_failure(config, session, row, failure, saved);
    if (session.others_wait()) BRAID_TRY(session.dismiss());
    return kept;
  }
  BRAID_TRY(session.dismiss());
  if (session.step() == config.train.total_steps) return ok_status();
  return stopped(config, session,
                 idle.status().ok() ? stop_request(session) : idle.status().message());
}

}  // namespace braid::inline run
