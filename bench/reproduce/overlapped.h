// NeMo-RL and verl (the measurements of examples/measurements): one workload with generation and
// training on the same devices in turn, and on devices of their own with generation one step ahead.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/measurement.h"
#include "experiment.h"

namespace braid::reproduce {

// Runs of one group: colocated, and one that overlaps.
struct OverlapPair {
  std::string group;
  Measurement colocated, overlapped;
};
// The pairs among the rows of RL steps that state lengths and layouts; 16-bit generation only.
std::vector<OverlapPair> overlap_pairs(const std::vector<Measurement>& rows);

// Measured phases of one run: to see what they make of a step.
struct PhaseRun {
  std::string group, placement;
  double total_s = 0, generate_s = 0, learn_s = 0;
};
// The runs of verl, whose batches are not stated.
std::vector<PhaseRun> phase_runs(const std::vector<Measurement>& rows);

// What a row ran, as a problem and a plan. kUnsupported... for layouts that a strategy does not
// have. Training keeps its layout for the log-prob passes; lengths are lognormal with the stated
// mean under the stated limit.
struct OverlapCase {
  PlanningProblem problem;
  ExecutionPlan plan;
};
Result<OverlapCase> overlap_case(const Measurement& row);

struct SteadyTime {
  double step_s = 0;
  double generate_s = 0, learn_s = 0;  // computing, mean over the devices
  bool fits = true;
};
// Steps in a row under the plan's staleness.
Result<SteadyTime> steady_time(const OverlapCase& one, const Calibration& calibration);

// Lognormal lengths whose mean after cutting at `longest` is `mean`. REQUIRES: mean < longest.
LengthDistribution cut_lognormal(double mean, double sigma, int64_t longest);

// GRPO without a critic, generation and training on all devices or on devices of their own.
struct VerlSetting {
  std::string model = "qwen2.5-7b", gpu = "h20";
  int gpus = 32;
  int rollout_gpus = 0;  // 0: colocated
  int gen_tp = 1;
  int64_t prompts = 512, samples_per_prompt = 16, minibatches = 16;
  double mean_response = 0;
  int64_t longest_response = 28672;
};
Result<OverlapCase> verl_case(const VerlSetting& setting);
// The mean response with which the updates of a step take so many seconds.
double mean_response_for(VerlSetting setting, double update_s);

}  // namespace braid::reproduce
