// What a step gains where an update begins while the samples of its later mini-batches are scored
// (fusion.train_beside_scoring), by the simulator. Pure; thread-safe.
#pragma once

#include <string>

#include "base/json.h"
#include "search/simulate.h"

namespace braid::inline search {

struct EarlyUpdateGain {
  int64_t minibatches = 0;          // scored before the update begins
  double early_s = 0, whole_s = 0;  // of a step, so and where it waits for all
};

// Of a plan whose updates wait, the number of mini-batches with which its step is fastest, of
// numbers_beside_scoring(). Errors: those of simulate_plan() for the plan as it is, or, where none
// of these numbers can be, for the last; what does not fit into memory is one.
Result<EarlyUpdateGain> early_update_gain(ExecutionPlan plan, const PlanningProblem& problem,
                                          const Calibration& calibration);

// One line: what it gains, that it is not worth it, or why it cannot be.
std::string early_update_text(const Result<EarlyUpdateGain>& gain);
OrderedJson early_update_json(const Result<EarlyUpdateGain>& gain);

}  // namespace braid::inline search
