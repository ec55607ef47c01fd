// Which checkpoints and exports a run makes and where it continues, as its configuration says. Not
// thread-safe.
#pragma once

#include <map>
#include <string>

#include "checkpoint/save_schedule.h"
#include "config/options.h"
#include "host/process.h"
#include "runtime/run_folder.h"
#include "runtime/session.h"

namespace braid {

// Makes the run's folder and takes it for this process until the handle closes (or the process
// ends, however it ends); an error if another process has it.
Result<FileHandle> claim_run_folder(const Config& config);

// Checks the keys of checkpoints and recorded rollouts and the files that they name, before
// anything is loaded.
Status check_run_state(const Config& config, const Graph& graph);

// Takes over the matrix libraries that an earlier process of the run (or of the checkpoint that is
// to be continued) chose by measuring, from RUN/kernels.txt: they round differently, so a continued
// run keeps them. Call before models are loaded.
Status restore_kernel_choices(const Config& config);

// Follows checkpoint.resume: loads the checkpoint that it means, if any, into the session and says
// so. REQUIRES: the session has made no step.
Status resume_session(const Config& config, Session& session);

// Saves the session after the step whose metrics row is given, removes what the retention does not
// keep, and returns the path.
Result<std::string> save_session(const Config& config, const Session& session,
                                 const std::map<std::string, double>& row);

// Fails when the folder of checkpoints has no room for one of this session: before the first step,
// so that no work is lost.
Status check_checkpoint_space(const Config& config, const Session& session);

// After a step that ended at now_s: RUN/kernels.txt, and the checkpoint and the export that are due
// by the schedule and by hf_every_steps. Periodic exports are folders export-step-000012/ROLE in
// the run's folder. Returns whether a checkpoint was written.
Result<bool> keep_step(const Config& config, const Session& session,
                       const std::map<std::string, double>& row, SaveSchedule& schedule,
                       double now_s);

}  // namespace braid
