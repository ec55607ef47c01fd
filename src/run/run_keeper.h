// Which checkpoints and exports a run makes and where it continues, as its configuration says. Not
// thread-safe.
#pragma once

#include <map>
#include <string>

#include "checkpoint/resumed_checkpoint.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/save_schedule.h"
#include "config/options.h"
#include "host/process.h"
#include "report/metrics_log.h"
#include "session/session.h"

namespace braid::inline run {

// The folders that only this process writes to while it holds this.
struct RunClaim {
  FileHandle run, checkpoints;
};

// Makes the folders of the run and its checkpoints and takes them for this process; an error if
// another process has one, or has written a checkpoint since `resumed` was found.
Result<RunClaim> claim_run(const Config& config, const ResumedCheckpoint& resumed);

// Checks the keys of checkpoints and recorded rollouts and the files that they name, before
// anything is loaded: also that a run which begins anew takes no other's place, and that one which
// continues has steps left. `all_files`: and that all files of its checkpoint have their sizes.
// Returns the checkpoint that the run continues from.
Result<ResumedCheckpoint> check_run_state(const Config& config, const Graph& graph, bool all_files);

// The day that chat templates see as today (data.template_date): as stated, or that of the
// checkpoint that is to be continued, or today(); the same on all ranks of the job. All ranks call
// it; `world` may be null.
Result<std::string> run_date(const Config& config, const ResumedCheckpoint& resumed, World* world);

// Loads the checkpoint that the run continues from, if any, into the session and says so. Returns
// the metrics of the last complete step, empty where there is none. REQUIRES: the session has made
// no step. All ranks call it; where one of them finds a file damaged, all fail.
Result<MetricsRow> resume_session(ResumedCheckpoint resumed, Session& session);

// Saves the session after the step whose metrics row is given; what the retention does not keep
// goes. With checkpoint.async it only begins to (Session::save()).
Status save_session(const Config& config, Session& session, const MetricsRow& row);

// Before the first step of a run that begins anew: removes what an earlier one left in its folders
// (run.overwrite). After all that could refuse the run.
Status begin_run(const Config& config);
// Says of a run that was to continue that it has found no checkpoint.
void warn_of_lost_checkpoints(const Config& config, const Session& session);

// "after step 12" or, within an open step, "within step 13".
std::string place_of(const Session& session);

// What is left of a run that `failure` ends: saves the session where it has work that is not
// `saved`, and returns the failure with what was saved and how to go on.
Status save_after_failure(const Config& config, Session& session, const MetricsRow& row,
                          const Status& failure, bool saved);

// What is left where ranks can save no more: the failure with the last checkpoint, and how to go
// on.
Status after_lost_ranks(const Config& config, const Status& failure);

// Fails when the folder of checkpoints has no room for one of this session: before the first step,
// so that no work is lost.
Status check_checkpoint_space(const Config& config, const Session& session);

// After a step that ended at now_s: RUN/kernels.txt, and the checkpoint and the export that are due
// by the schedule and by hf_every_steps. Periodic exports are folders export-step-000012/ROLE in
// the run's folder. Returns whether a checkpoint was written.
Result<bool> keep_step(const Config& config, Session& session, const MetricsRow& row,
                       SaveSchedule& schedule, double now_s);

}  // namespace braid::inline run
