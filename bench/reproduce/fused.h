// RLHFuse's training stage (Zhong et al., arXiv 2409.13221): PPO on 256 Hopper devices, where the
// pipelines of actor and critic are fused into one schedule. Published: 1.2 to 1.3 times as fast as
// one after the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiment.h"

namespace braid::reproduce {

struct FusedRow {
  std::string actor, critic;
  int large_tp = 8, large_pp = 8;  // of the model with more parameters
  int small_tp = 8, small_pp = 8;
  int64_t response_tokens = 512;
  int64_t units = Fusion().units;  // of the search for the order
};
std::vector<FusedRow> fused_rows();

// 32 nodes of 8 H800 with 200 Gb/s each; prompts of 128 tokens, 512 in a step, of which an update
// takes `minibatch`.
Experiment paper_experiment(const FusedRow& row, const LengthDistribution& response,
                            int64_t minibatch = 64);
// Both updates in the row's layouts, and every other call in that which `others` says, on all
// devices.
ExecutionPlan paper_plan(const FusedRow& row, const PlanningProblem& problem,
                         const std::function<Strategy(const Call&)>& others);

// Both models' layouts on all devices: each replica of the large one has nodes of its own, and
// replicas of the small one pass those in the opposite direction.
struct FusedSetting {
  PlanningProblem problem;
  ExecutionPlan plan;  // with fused training
};
Result<FusedSetting> fused_setting(const FusedRow& row);

// Seconds of the training stage: from the first update's start to the last one's end.
struct FusedTimes {
  double apart_s = 0, together_s = 0;
  double actor_s = 0, critic_s = 0;  // apart
  // Of the passes alone, in the counts of the fused order: one pipeline after the other, together,
  // and the bound that no order beats.
  double passes_apart = 0, passes_together = 0, passes_bound = 0;
};
Result<FusedTimes> run_fused(const FusedRow& row, const Calibration& calibration);

}  // namespace braid::reproduce
