// What a step gains where samples are given to the replicas of a generation by predicted lengths
// (fusion.predicted_lengths), by the simulator. Pure; thread-safe.
#pragma once

#include <string>

#include "base/json.h"
#include "search/simulate.h"

namespace braid::inline search {

struct PredictedGain {
  double in_order_s = 0, predicted_s = 0;  // of a step, the mean over several draws of lengths
  double correlation = 0;                  // of predictions and lengths
  bool pays() const;
};

// Of a plan without predictions and the same one with them. Errors: a plan that cannot have them,
// those of simulate().
Result<PredictedGain> predicted_gain(ExecutionPlan plan, const PlanningProblem& problem,
                                     const Calibration& calibration);

// One line: what it gains, or why nothing.
std::string predicted_text(const Result<PredictedGain>& gain);
OrderedJson predicted_json(const Result<PredictedGain>& gain);

}  // namespace braid::inline search
