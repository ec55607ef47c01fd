// ReaL (arXiv 2406.14088): the searched plan beside the symmetric heuristic and beside the
// placements of other systems, by response length. Published seconds are those of the first
// version's throughput figure and of the runs behind it.
#pragma once

#include <string>
#include <vector>

#include "experiment.h"

namespace braid::reproduce {

struct RealRow {
  std::string actor, critic;
  int gpus = 8;
  int64_t response_tokens = 128;
  // Published seconds of one step; 0: not known.
  double heuristic_s = 0, searched_s = 0, deepspeed_s = 0, openrlhf_s = 0;
};
const std::vector<RealRow>& real_rows();

// Tokens of a batch are constant: fewer sequences where they are longer.
Experiment real_experiment(const RealRow& row);

// The committed calibration, and one whose constants are those that the published 7B runs imply.
const Calibration& real_engine();

// Whether a call's plan is one that ReaL's search considers: at least half a node, micro-batches as
// its rule sets them, full recomputation, no ZeRO beyond stage 1.
bool in_published_space(const CallPlan& entry);

struct RealResult {
  Result<PlannedStep> heuristic, searched;
  double gain() const;  // of the searched plan over the heuristic; NaN where one does not fit
};
RealResult run_real(const PlanningProblem& problem, const Calibration& calibration,
                    const PlanLimits& limits);

}  // namespace braid::reproduce
