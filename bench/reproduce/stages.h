// RLHFuse end to end (Zhong et al., arXiv 2409.13221, section 7): PPO on 256 Hopper devices.
// What each fusion gains over the same engine without, and the whole over plans as DeepSpeed-Chat
// and ReaL make them.
#pragma once

#include <string>
#include <vector>

#include "experiment.h"
#include "fused.h"

namespace braid::reproduce {

inline constexpr int64_t kPublishedMiniBatch = 64;  // sequences of an update

// What the paper does not state.
struct StagesInputs {
  double sigma = 0;         // of the logarithm of response lengths
  double median_share = 0;  // median over the limit
  // Of the generation's time, that scoring takes after it without fusion: the price of its passes
  // is raised to that. 0: as priced.
  double scoring_share = 0;
  // Prices of the devices beside the committed ones: constants of with_constants().
  std::map<std::string, double> constants = {};
};
// Lengths whose 99.9th percentile is ten times the median (the paper's figure for chat logs) and
// the limit.
StagesInputs tailed_lengths();

// Seconds of one step: generation and scoring together, training, and all of it.
struct StageTimes {
  double generate_s = 0;  // until the last sample is there
  double rollout_s = 0;   // until the last is scored
  double train_s = 0;
  double step_s = 0;
};

struct StagesResult {
  StageTimes base, handed, fused, both;
  ExecutionPlan plan;                     // both
  double infer_factor = 1;                // of the price of a scoring pass over the committed one
  int64_t generate_tp = 0, score_tp = 0;  // the layouts with which the base is fastest
};
// Training in the paper's pipelines; generation and scoring in the layouts with which a step
// without fusion is fastest. Errors: nothing fits.
Result<StagesResult> run_stages(const FusedRow& row, const StagesInputs& inputs);

// Step seconds of a plan as DeepSpeed-Chat makes it, and of the best that the search finds among
// those that ReaL considers. `minibatch`: sequences of an update.
Result<PlannedStep> deepspeed_step(const FusedRow& row, const StagesInputs& inputs,
                                   int64_t minibatch);
Result<PlannedStep> real_step(const FusedRow& row, const StagesInputs& inputs,
                              const PlanLimits& limits);

}  // namespace braid::reproduce
