// The steps of a run on the rank that leads, each with all that it writes, until the end or a stop
// signal; where they fail, what was done is saved. One thread.
#pragma once

#include <functional>
#include <string>

#include "config/options.h"
#include "report/metrics_log.h"
#include "report/warning_log.h"
#include "run/idle_watch.h"
#include "run/run_keeper.h"
#include "session/session.h"

namespace braid::inline run {

struct TrainLoop {
  const Config& config;
  Session& session;
  SaveSchedule& schedule;
  const Program& program;
  std::string order;  // file for the instructions of each step; "" = none
  IdleWatch& idle;
  WarningLog& warnings;
  std::function<void(const MetricsRow&)> noted;  // after each step, before its row is written
};

// Steps after the one whose row is given; what ends them has been said to the other ranks. kStopped
// where a signal or idle steps end the run before its last step.
Status train_loop(const TrainLoop& run, MetricsLog& log, MetricsRow row);

}  // namespace braid::inline run
