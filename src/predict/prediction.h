// What was predicted of a run under a plan beside what was measured, whether the plan is still the
// best under what was measured, and what the plan leaves to choose, chosen anew. One thread calls
// it; it searches on one of its own.
#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "launch/job.h"
#include "session/session.h"
#include "sim/simulate.h"

namespace braid::inline predict {

class RunPrediction {
 public:
  // REQUIRES: `planned` outlives this. Nothing is done for a run without a plan.
  explicit RunPrediction(const PlannedRun& planned) : planned_(planned) {}

  // After each step. With the fourth a search begins beside the run; as soon as it has ended, a
  // line says whether the plan is still the best, and a better one is written to
  // RUN/better_plan.yaml. Every eighth step fusion.migrate_below_samples: auto is chosen anew, for
  // the lengths of the last steps, and the session told. From the second step on
  // RUN/predicted.json holds what is known so far.
  void note(Session& session, const std::map<std::string, double>& row);
  // Writes RUN/predicted.json and returns a summary for people, "" where nothing was predicted.
  // Medians over the steps after the first; predicted for the lengths of the step of median time,
  // and for the median of the draws. `saving_peaks`: Session::saving_peaks().
  Result<std::string> write(const std::map<int64_t, double>& saving_peaks);
  // Waits some seconds for the search that began beside the run, and says what it found, or that it
  // is given up.
  void end_search();
  // Gives the search up: nobody waits for it where a run fails.
  ~RunPrediction() { run_ended_->store(true); }

 private:
  PlanningProblem measured_problem() const;
  // `memory`: with the memory curves of devices.
  Result<Trace> predicted(const Calibration& calibration, bool memory = false) const;
  // Measured over predicted seconds of each kind of call, as efficiencies.
  Result<std::map<std::string, double>> measured_factors() const;
  Result<Json> comparison() const;
  Status record(const Json& comparison) const;
  void begin_search();
  void say_found();
  std::vector<SampleLengths> last_lengths() const;
  void choose_migration(Session& session);

  // The lists of all ranks, compiled where the run has one alone.
  Result<const Program*> program() const;

  const PlannedRun& planned_;
  mutable std::optional<Program> program_;
  std::vector<double> steps_;
  std::map<std::string, std::vector<double>> calls_;
  std::map<int64_t, std::vector<double>> peaks_;  // by rank, bytes after each step
  std::vector<SampleLengths> lengths_;            // of each step
  std::vector<double> draws_;                     // likewise, where steps may draw again
  double next_record_s_ = 0;
  std::future<std::string> found_;  // what to say
  // For the search: the run has ended.
  std::shared_ptr<std::atomic<bool>> run_ended_ = std::make_shared<std::atomic<bool>>(false);
  std::future<Result<int64_t>> migration_;  // the number that is fastest now
};

}  // namespace braid::inline predict
