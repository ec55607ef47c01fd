#include "run/run_keeper.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "data/chat/render.h"
#include "host/file.h"
#include "host/file_claim.h"
#include "identity/run_identity.h"
#include "nn/kernels/choice.h"
#include "run/kernel_choices.h"

namespace braid::inline run {
namespace {

Status check_rollout_files(const Config& config, const Graph& graph) {
  const RolloutConfig& rollout = config.rollout;
  const char* key = rollout.record ? "rollout.record" : "rollout.replay";
  if ((rollout.record || !rollout.replay.empty()) && !generates(graph))
    return invalid_input(cat(key, ": algorithm ", graph.name, " generates nothing"));
  if (rollout.replay.empty()) return ok_status();
  BRAID_TRY(RolloutReplay::open(rollout.replay).status());
  std::error_code error;
  const std::string recorded = join_path(run_folder(config), kRolloutFile);
  if (rollout.record && std::filesystem::equivalent(rollout.replay, recorded, error))
    return invalid_input(cat("rollout.record: would overwrite ", recorded,
                             ", which rollout.replay reads; give the run another run.name"));
  return ok_status();
}

// The folder of a run lies in run.dir.
Status check_run_name(const RunConfig& run) {
  namespace fs = std::filesystem;
  const fs::path name = run.name;
  const bool leaves =
      name.is_absolute() ||
      std::any_of(name.begin(), name.end(), [](const fs::path& part) { return part == ".."; });
  const bool empty = name.empty() || name.lexically_normal() == ".";
  if (!leaves && !empty) return ok_status();
  return invalid_input(cat("run.name: '", run.name, "' ", empty ? "is empty" : "leaves run.dir (",
                           empty ? "" : run.dir, empty ? "" : ")",
                           "; choose a name within it, and another run.dir for another place"));
}

bool is_of_evaluation(const Config& config) {
  return parse_best_metric(config.checkpoint.keep_best).name.rfind("eval/", 0) == 0;
}

Status check_best_metric(const Config& config) {
  if (!is_of_evaluation(config) || config.eval.every_steps > 0) return ok_status();
  return invalid_input(cat("checkpoint.keep_best: ", config.checkpoint.keep_best,
                           " needs evaluations during training; set eval.every_steps"));
}

// Said after the first step, not when the first checkpoint is due.
void note_missing_metric(const Config& config, int64_t step, const MetricsRow& row) {
  const std::string best = parse_best_metric(config.checkpoint.keep_best).name;
  if (best.empty() || row.count(best) > 0) return;
  std::vector<std::string> names;
  for (const auto& [name, value] : row) names.push_back(name);
  log_warning(cat("checkpoint.keep_best: step ", step, " has no metric '", best, "'",
                  did_you_mean(best, names), ", its checkpoint is not compared"));
}

// A run that begins anew would remove what another one left.
Status check_unused(const Config& config) {
  if (config.checkpoint.resume != "none" || config.run.overwrite) return ok_status();
  BRAID_ASSIGN(const auto checkpoints, list_checkpoints(checkpoint_folder(config)));
  std::string found = checkpoints.empty() ? "" : checkpoints.back().path;
  for (const char* file : {"metrics.jsonl", kRolloutFile}) {
    const std::string path = join_path(run_folder(config), file);
    const auto text =
        found.empty() && path_exists(path) ? read_file(path) : Result<std::string>("");
    if (text.ok() && !text->empty()) found = path;
  }
  if (found.empty()) return ok_status();
  const char* const go_on = checkpoints.empty() ? "it has no checkpoint to continue from; "
                                                : "continue it with checkpoint.resume=auto, ";
  return invalid_input(cat("checkpoint.resume: none would begin anew where a run has been (", found,
                           " is there); ", go_on,
                           "choose another run.name, or let it go with "
                           "run.overwrite=true"));
}

// That the work since the last checkpoint is lost, and why unless `failure` says it.
std::string unsaved_text(const Config& config, const Status& status, const Status& failure) {
  const auto all = list_checkpoints(checkpoint_folder(config));
  const bool said = failure.message().find(status.message()) != std::string::npos;
  return cat("the work since the last checkpoint could not be saved",
             said ? "" : cat(" (", status.message(), ")"),
             all.ok() && !all->empty()
                 ? cat("; it is ", all->back().path, ", continue with checkpoint.resume=auto")
                 : "; there is none");
}

// More steps than are asked for were made already.
Status check_length(const Config& config, const Json& numbers, const std::string& path) {
  BRAID_ASSIGN(const auto step, json_field<int64_t>(numbers, "step"));
  const bool open = numbers.contains("open_step");
  if (step + (open ? 1 : 0) <= config.train.total_steps) return ok_status();
  return invalid_input(cat("train.total_steps: ", config.train.total_steps, " are asked for, but ",
                           path, " is ", open ? "within step " : "after step ",
                           step + (open ? 1 : 0),
                           "; ask for more, or go back with checkpoint.resume=PATH"));
}

// Before ranks agree on it: that of this process.
std::string own_date(const ResumedCheckpoint& resumed) {
  if (resumed.none()) return today();
  const std::string saved = saved_date(resumed.numbers().value("options", Json()));
  return saved.empty() ? today() : saved;
}

// Whoever had the folder until now may have gone further meanwhile.
Status check_still_newest(const Config& config, const ResumedCheckpoint& resumed) {
  if (config.checkpoint.resume != "auto") return ok_status();
  BRAID_ASSIGN(const auto all, list_checkpoints(checkpoint_folder(config)));
  const std::string newest = all.empty() ? "" : all.back().path;
  if (newest == resumed.path()) return ok_status();
  return invalid_input(cat("checkpoint.resume: another process has changed ",
                           checkpoint_folder(config),
                           " while this run started: its newest "
                           "checkpoint is ",
                           newest.empty() ? "none" : newest, " now, and was ",
                           resumed.none() ? "none" : resumed.path(), "; start the run again"));
}

}  // namespace

Result<RunClaim> claim_run(const Config& config, const ResumedCheckpoint& resumed) {
  RunClaim claim;
  BRAID_ASSIGN(claim.run, claim_folder(run_folder(config), "run.name"));
  BRAID_ASSIGN(claim.checkpoints, claim_folder(checkpoint_folder(config), "checkpoint.dir"));
  BRAID_TRY(check_still_newest(config, resumed));
  for (const std::string& folder : {run_folder(config), checkpoint_folder(config)})
    remove_unclaimed_files(folder);
  // By which other ranks know that they see the same folder (agree_on_run_folder()).
  const std::string mark =
      cat(::getpid(), "-", std::chrono::system_clock::now().time_since_epoch().count());
  const int file = claim.checkpoints.get();
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, mark.data(), mark.size(), 0) < 0 ||
      ::fsync(file) != 0)
    return io_error(cat(checkpoint_folder(config), ": writing failed: ", write_problem(errno)));
  return claim;
}

Result<ResumedCheckpoint> check_run_state(const Config& config, const Graph& graph,
                                          bool all_files) {
  const Json own_options = flat_options(config);
  BRAID_TRY(validate(config.checkpoint));
  BRAID_TRY(check_allowed_keys(config.checkpoint.allow, own_options));
  BRAID_TRY(check_run_name(config.run));
  BRAID_TRY(check_best_metric(config));
  BRAID_TRY(check_rollout_files(config, graph));
  BRAID_TRY(check_unused(config));
  BRAID_ASSIGN(
      ResumedCheckpoint resumed,
      ResumedCheckpoint::find(config.checkpoint.resume, checkpoint_folder(config), all_files));
  if (resumed.none()) return resumed;
  const Json& numbers = resumed.numbers();
  BRAID_ASSIGN(const Json options, json_field<Json>(numbers, "options"));
  const Json files = numbers.value("files", Json::object());
  BRAID_TRY(check_same_options(options, files, own_options, config.checkpoint.allow)
                .at(cat("checkpoint ", resumed.path())));
  BRAID_TRY(check_length(config, numbers, resumed.path()));
  return resumed;
}

Result<std::string> run_date(const Config& config, const ResumedCheckpoint& resumed, World* world) {
  if (!config.data.template_date.empty()) return config.data.template_date;
  const bool leads = world == nullptr || world->global_rank() == 0;
  const std::string day = leads ? own_date(resumed) : today();
  return world == nullptr ? day : world->told_by_first("the date of the run", day);
}

Status begin_run(const Config& config) {
  const bool anew = config.checkpoint.resume == "none";
  if (anew) BRAID_TRY(remove_checkpoints(checkpoint_folder(config)));
  // Of another plan than the one that goes on; this one's is written from its second step on.
  std::filesystem::remove(join_path(run_folder(config), "predicted.json"));
  const std::string better = join_path(run_folder(config), "better_plan.yaml");
  if (anew && config.plan.file != better) std::filesystem::remove(better);
  return ok_status();
}

void warn_of_lost_checkpoints(const Config& config, const Session& session) {
  const std::string rows = join_path(run_folder(config), "metrics.jsonl");
  const bool anew = session.step() == 0 && !session.step_open();
  if (config.checkpoint.resume != "none" && anew && path_exists(rows))
    log_warning(cat("checkpoint.resume: ", checkpoint_folder(config),
                    " has no checkpoint; the run begins anew, in place of what ", rows, " says"));
}

std::string place_of(const Session& session) {
  return session.step_open() ? cat("within step ", session.step() + 1)
                             : cat("after step ", session.step());
}

Result<MetricsRow> resume_session(ResumedCheckpoint resumed, Session& session) {
  if (resumed.none()) return MetricsRow();
  const std::string path = resumed.path();
  const MetricsRow row = resumed.manifest().metrics;
  const auto rank = static_cast<double>(session.rank());
  const Status loaded = session.load_state(
      CheckpointReader::of(std::move(resumed), rank / static_cast<double>(session.ranks())));
  if (loaded.code() == Code::kDataLoss)  // on all ranks: any of them may be the first to say it
    return refused_as_damaged(path, loaded);
  BRAID_TRY(loaded.at(cat("checkpoint ", path)));
  log_info(cat("continuing ", place_of(session), " from ", path));
  return row;
}

Status save_session(const Config& config, Session& session, const MetricsRow& row) {
  BRAID_TRY(session.save(row, {{kKernelKey, matrix_choices()}}));
  if (!session.step_open()) note_missing_metric(config, session.step(), row);
  return ok_status();
}

Status save_after_failure(const Config& config, Session& session, const MetricsRow& row,
                          const Status& failure, bool saved) {
  const auto ended = [&](const std::string& what) {
    return Status(failure.code(), cat(failure.message(), "; ", what));
  };
  const char* const go_on = "; continue with checkpoint.resume=auto";
  const int64_t step = session.step();
  if (step == 0 && !session.step_open()) return ended("no step was complete, nothing was saved");
  saved = guarded([&] { return session.finish_saves(); }).ok() && saved;
  if (saved && !session.step_open())
    return ended(cat("step ", step, " is in the last checkpoint", go_on));
  std::string path;
  const Status status = guarded([&] {
    BRAID_TRY(save_session(config, session, row));
    BRAID_TRY(session.finish_saves());
    BRAID_ASSIGN(const auto all, list_checkpoints(checkpoint_folder(config)));
    path = all.back().path;
    return ok_status();
  });
  if (!status.ok()) return ended(unsaved_text(config, status, failure));
  if (!session.step_open()) return ended(cat("step ", step, " was saved in ", path, go_on));
  return ended(
      cat("step ", step + 1, " was saved as far as it was, with its rollouts, in ", path, go_on));
}

Status after_lost_ranks(const Config& config, const Status& failure) {
  return {failure.code(), cat(failure.message(), "; ", unsaved_text(config, failure, failure))};
}

Status check_checkpoint_space(const Config& config, const Session& session) {
  const std::string folder = checkpoint_folder(config);
  BRAID_TRY(make_folder(folder));
  BRAID_ASSIGN(const int64_t bytes, session.saved_bytes());
  return check_free_space(folder, bytes + kCheckpointOverheadBytes);
}

Result<bool> keep_step(const Config& config, Session& session, const MetricsRow& row,
                       SaveSchedule& schedule, double now_s) {
  BRAID_TRY(save_kernel_choices(config));
  const bool saves = schedule.is_due(session.step(), now_s);
  if (session.step() == 1 && !saves && !is_of_evaluation(config))
    note_missing_metric(config, 1, row);
  if (saves) {
    BRAID_TRY(save_session(config, session, row));
    schedule.note_save(now_s);
  }
  const int64_t exports = config.checkpoint.hf_every_steps;
  if (exports > 0 && session.step() % exports == 0) {
    char name[40];
    std::snprintf(name, sizeof name, "export-step-%06lld", static_cast<long long>(session.step()));
    BRAID_TRY(session.export_models(join_path(run_folder(config), name)));
  }
  return saves;
}

}  // namespace braid::inline run
