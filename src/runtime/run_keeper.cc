#include "runtime/run_keeper.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "host/file.h"
#include "host/machine.h"
#include "nn/kernels/choice.h"
#include "runtime/run_identity.h"

namespace braid {
namespace {

constexpr const char* kKernelFile = "kernels.txt";
constexpr const char* kKernelKey = "kernels";  // the same in a checkpoint's state

Status save_kernel_choices(const Config& config) {
  const std::string path = join_path(run_folder(config), kKernelFile);
  const std::string choices = matrix_choices();
  const auto written = read_file(path);
  return written.ok() && *written == choices ? ok_status() : write_file_atomic(path, choices);
}

// The choices of an earlier process; "" if there are none.
Result<std::string> earlier_choices(const Config& config) {
  BRAID_ASSIGN(const std::string checkpoint,
               resume_path(config.checkpoint.resume, checkpoint_folder(config)));
  if (!checkpoint.empty()) {
    BRAID_ASSIGN(const Json numbers, checkpoint_numbers(checkpoint));
    return json_field<std::string>(numbers, kKernelKey);
  }
  const std::string path = join_path(run_folder(config), kKernelFile);
  return path_exists(path) ? read_file(path) : Result<std::string>(std::string());
}

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

}  // namespace

Result<FileHandle> claim_run_folder(const Config& config) {
  const std::string folder = run_folder(config);
  BRAID_TRY(make_folder(folder));
  const std::string path = join_path(folder, "lock");
  FileHandle file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.is_open()) return io_error(cat(path, ": cannot open: ", std::strerror(errno)));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return invalid_input(cat("run.name: another process is writing to ", folder,
                             "; wait for it or choose another name"));
  return file;
}

Status check_run_state(const Config& config, const Graph& graph) {
  BRAID_TRY(validate(config.checkpoint));
  BRAID_TRY(check_rollout_files(config, graph));
  BRAID_ASSIGN(const std::string path,
               resume_path(config.checkpoint.resume, checkpoint_folder(config)));
  if (path.empty()) return ok_status();
  BRAID_ASSIGN(const Json numbers, checkpoint_numbers(path));
  BRAID_ASSIGN(const Json options, json_field<Json>(numbers, "options"));
  return check_same_options(options, flat_options(config)).at(cat("checkpoint ", path));
}

Status restore_kernel_choices(const Config& config) {
  BRAID_ASSIGN(const std::string choices, earlier_choices(config));
  const Status taken = set_matrix_choices(choices);
  if (!taken.ok())
    log_warning(cat("numbers will differ in their last bits from those of the run so far: ",
                    taken.message()));
  return ok_status();
}

Status resume_session(const Config& config, Session& session) {
  BRAID_ASSIGN(const std::string path,
               resume_path(config.checkpoint.resume, checkpoint_folder(config)));
  if (path.empty()) return ok_status();
  BRAID_ASSIGN(const CheckpointState state, load_checkpoint(path));
  BRAID_TRY(session.load_state(state).at(cat("checkpoint ", path)));
  log_info(cat("continuing after step ", session.step(), " from ", path));
  return ok_status();
}

Result<std::string> save_session(const Config& config, const Session& session,
                                 const std::map<std::string, double>& row) {
  if (config.train.offload != "off") release_free_heap();  // written files are read to be hashed
  const std::string folder = checkpoint_folder(config);
  BRAID_ASSIGN(CheckpointState state, session.save_state());
  state.numbers[kKernelKey] = matrix_choices();
  BRAID_ASSIGN(std::string path, save_checkpoint(folder, session.step(), row, state));
  const std::string best = parse_best_metric(config.checkpoint.keep_best).name;
  if (!best.empty() && row.count(best) == 0)
    log_warning(cat("checkpoint.keep_best: step ", session.step(), " has no metric '", best,
                    "', its checkpoint is not compared"));
  BRAID_TRY(apply_retention(folder, session.step(), config.checkpoint));
  return path;
}

Status check_checkpoint_space(const Config& config, const Session& session) {
  const std::string folder = checkpoint_folder(config);
  BRAID_TRY(make_folder(folder));
  BRAID_ASSIGN(const CheckpointState state, session.save_state());
  return check_free_space(folder, size_bytes(state));
}

Result<bool> keep_step(const Config& config, const Session& session,
                       const std::map<std::string, double>& row, SaveSchedule& schedule,
                       double now_s) {
  BRAID_TRY(save_kernel_choices(config));
  const bool saves = schedule.is_due(session.step(), now_s);
  if (saves) {
    BRAID_TRY(save_session(config, session, row).status());
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

}  // namespace braid
