// HybridFlow (arXiv 2409.19256, section 8): which placement of the four PPO models is fastest on
// how many devices, how long generation takes by its tensor parallelism, and what moving the
// actor's weights between training and generation costs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiment.h"

namespace braid::reproduce {

// 1024 prompts of 1024 tokens with responses of 1024 tokens, eight updates.
Experiment hybridflow_experiment(const std::string& actor, const std::string& critic, int gpus);

// Which roles share devices; every set has devices of its own.
struct Placement {
  const char* name;
  std::vector<std::vector<std::string>> sets;
};
const std::vector<Placement>& hybridflow_placements();

// The ways to divide a cluster among the sets of a placement that are worth pricing: whole nodes
// (parts of nodes on small clusters), inference models never with more than the trained ones.
std::vector<RoleMeshes> allocations(const Placement& placement, const Cluster& cluster);

struct PlacedStep {
  Result<PlannedStep> step;
  std::string allocation;  // devices of each set, "64 + 32 + 16 + 16"
};
// The fastest allocation of a placement, its layouts found by the search among those that
// limits.allowed accepts.
PlacedStep best_allocation(const PlanningProblem& problem, const Placement& placement,
                           const PlanLimits& limits);
// Layouts of training and inference as the paper's figures 14 and 15 state them: tp 8, pipelines of
// 1 stage for 7B and 13B, 2 for 34B and 4 for 70B, Megatron's sharded optimizer at most.
std::function<bool(const CallPlan&)> in_published_layouts(const std::string& actor,
                                                          const std::string& critic);

// One model between a training layout and generation with tensor parallelism gen_tp on the same
// devices. Shares are of the model's bytes, per device.
struct Transition {
  std::string model;
  int tp = 8, pp = 1, dp = 2, gen_tp = 2;
  // Devices of a generation group are those whose training slices its slices contain (the paper's
  // section 5.3); false: neighbours.
  bool strided = false;
};
struct TransitionVolume {
  double deepspeed = 0, gathered = 0, hybridflow = 0;  // the paper's formulas, table 2
  double received = 0;                                 // Braid's messages, the device with most
  double resident = 0;                                 // Braid: weights of both layouts
};
TransitionVolume transition_volume(const Transition& transition, const Cluster& cluster);

// Everything on all devices, training with the transition's layout: seconds of generation, and of
// the messages that bring the weights to it.
struct TransitionTime {
  double generate_s = 0, move_s = 0;
  bool fits = true;
};
Result<TransitionTime> transition_time(const PlanningProblem& problem,
                                       const Transition& transition);

}  // namespace braid::reproduce
