// The numbers of a step: each rank's become everyone's, and a row of metrics. Not thread-safe.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <string>
#include <vector>

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
  // Everyone's metrics and times as one, and whether every sample was computed as often as it had
  // to be. `whole_s`: seconds of the step; `instruction_s`: of the CPU around what an instruction
  // does; `record`: of this rank's step.
  Status merge(double whole_s, double instruction_s, Json record);
  // The metrics of the step whose reports are merged; counts its samples as seen. `epoch` of the
  // data.
  std::map<std::string, double> row(double epoch);

  // Seconds of each call, [rank]; a rank has those that it takes part in.
  const std::vector<std::map<std::string, double>>& rank_seconds() const { return rank_seconds_; }
  // Bytes that each rank's tensors held at most on its device, [rank].
  const std::vector<double>& rank_peaks() const { return rank_peaks_; }
  // What each rank did and held in the step, as StepTimeline says it; null where that is not
  // recorded.
  const std::vector<Json>& rank_records() const { return rank_records_; }
  double step_s() const { return step_s_; }
  // "" or the signal that asked a rank of the job to stop.
  const std::string& stop_request() const { return report_.stop_signal; }

 private:
  RankReport own() const;
  double seconds_of_calls() const;
  void add_calls(std::map<std::string, double>& row) const;

  const StepContext& step_;
  const at::Device device_;
  RankReport report_;  // everyone's
  std::vector<std::map<std::string, double>> rank_seconds_;
  std::vector<double> rank_peaks_;
  std::vector<Json> rank_records_;
  int64_t trained_before_ = 0;
  double step_s_ = 0;
  double instruction_s_ = 0;  // of CPU, around what instructions do; mean
};

}  // namespace braid::inline session
