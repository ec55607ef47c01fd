// The numbers of a step: those of all ranks come to the first one, which makes a row of metrics of
// them. Not thread-safe.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>

#include "session/rank_report.h"
#include "session/step_context.h"

namespace braid::inline session {

class JobReport {
 public:
  // `device`: of this rank's tensors. REQUIRES: `step` outlives this.
  JobReport(const StepContext& step, at::Device device) : step_(step), device_(device) {}

  // A step begins, or goes on with so many trained tokens.
  void begin_step(int64_t trained_tokens);
  // Of this rank's step.
  int64_t trained_tokens() const { return step_.record.trained.tokens - trained_before_; }
  // All ranks together: on the first one everyone's metrics and times as one, what it needs of
  // what others have, and whether every sample was computed as often as it had to be. `whole_s`:
  // seconds of the step; `instruction_s`: of the CPU around what an instruction does; `record`: of
  // this rank's step.
  Status merge(double whole_s, double instruction_s, Json record);
  // Counts the step's samples as seen. On the first rank the metrics of the step whose reports are
  // merged. `epoch` of the data.
  std::map<std::string, double> row(double epoch);

  // On the first rank, of the first ones of the job (rank_report.h), by rank: the most bytes of
  // their tensors, and what they did and held, where that is recorded.
  const std::map<int64_t, double>& rank_peaks() const { return report_.peak_bytes; }
  const std::map<int64_t, Json>& rank_records() const { return report_.records; }
  double step_s() const { return step_s_; }
  // "" or the signal that asked a rank of the job to stop: on the first rank.
  const std::string& stop_request() const { return report_.stop_signal; }

 private:
  RankReport own(Json record) const;
  double seconds_of_calls() const;
  void add_calls(std::map<std::string, double>& row) const;

  const StepContext& step_;
  const at::Device device_;
  RankReport report_;  // of this rank and those that it has heard: on the first one everyone's
  int64_t trained_before_ = 0;
  double step_s_ = 0;
  double instruction_s_ = 0;  // of CPU, around what instructions do
};

}  // namespace braid::inline session
