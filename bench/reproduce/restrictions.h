// The plan space of Braid's search, with parts of it left out: what one part after the other adds,
// and what published systems search. A restriction is a condition on plans, so that the optimum of
// each is found by one search, under one budget and one set of prices. Values; thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "search/whole.h"

namespace braid::reproduce {

// What may leave the devices for host memory while a role rests.
enum class Waiting { kNothing, kFrozenWeights, kAnything };

struct Restriction {
  std::string name;
  // A plan is in the space where all its calls meet one of these conditions; none: any plan does.
  std::vector<std::function<bool(const CallPlan&)>> alternatives = {};
  std::vector<DeviceMesh> meshes = {};  // that alternatives name beside the usual ones
  Waiting waiting = Waiting::kAnything;
  PlanParts parts = {};
};

// Braid's space, synchronous: everything but staleness.
Restriction whole_space();

// From all calls in one layout on all devices, a part more each: a layout for each call
// (reallocation), devices for each call (placement), offload. Both fusions and staleness follow
// from WholeFound, which has the fastest plan without and with each, as do predicted lengths.
std::vector<Restriction> steps_of_space(const PlanningProblem& problem);

// ReaL (arXiv 2406.14088): devices and 3D layouts for each call; no ZeRO beyond stage 1, full
// recomputation, micro-batches by rule, no fusion.
// APP (arXiv 2312.11819): co-located or interleaved models under ZeRO, with tensor parallelism in
// generation, or training and inference on devices of their own under Megatron's layouts.
// RLHFuse (arXiv 2409.13221): all devices for each call, 3D layouts, both fusions.
// verl (arXiv 2409.19256): co-located, split or standalone models under FSDP or Megatron's layouts,
// engines without pipelines.
// Each may do more than the system: what binds several calls (one layout for all passes of a
// trained model) is not asked for.
std::vector<Restriction> systems(const PlanningProblem& problem);

// Why a plan is not in the space, or OK.
Status within(const Restriction& restriction, const ExecutionPlan& plan,
              const PlanningProblem& problem);

// The plan that a system's publication or release has for the problem, where there is one.
Result<ExecutionPlan> published_plan(const std::string& system, const PlanningProblem& problem);

struct SearchBudget {
  int64_t units = 2, judged = 6;
  int threads = 1;
  Judge judge = {};  // that several searches share; empty: each has its own
};
// The best plan that is found in the space. Of several alternatives the two that are best by the
// evaluator are judged, each under the whole budget. kInfeasible: none fits.
Result<WholeFound> optimum(const PlanningProblem& problem, const CallPricer& pricer,
                           const Calibration& calibration, const Restriction& restriction,
                           const SearchBudget& budget);

}  // namespace braid::reproduce
