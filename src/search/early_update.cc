#include "search/early_update.h"

#include "base/text.h"
#include "search/migration.h"

namespace braid::inline search {
namespace {

std::optional<double> step_of(const ExecutionPlan& plan, const PlanningProblem& problem,
                              const Calibration& calibration) {
  const auto verdict = simulate_plan(plan, problem, calibration, {});
  if (!verdict.ok() || !verdict->fits) return std::nullopt;
  return verdict->step_s;
}

bool gains(const EarlyUpdateGain& gain) { return gain.early_s < (1 - kNoGain) * gain.whole_s; }

}  // namespace

std::optional<EarlyUpdateGain> early_update_gain(ExecutionPlan plan, const PlanningProblem& problem,
                                                 const Calibration& calibration) {
  plan.fusion.train_beside_scoring = 0;
  const auto whole = step_of(plan, problem, calibration);
  if (!whole) return std::nullopt;
  std::optional<EarlyUpdateGain> best;
  for (int64_t first = 1; first < problem.workload.minibatches; first *= 2) {
    plan.fusion.train_beside_scoring = first;
    const auto early = step_of(plan, problem, calibration);
    if (early && (!best || *early < best->early_s)) best = {first, *early, *whole};
  }
  return best;
}

std::string early_update_text(const EarlyUpdateGain& gain) {
  return cat("training beside scoring: ",
             gains(gain) ? cat("fusion: {train_beside_scoring: ", gain.minibatches, "}")
                         : std::string("not worth it"),
             ": the step takes ", fixed_text(gain.early_s, 3), " s, ", fixed_text(gain.whole_s, 3),
             " s where the update waits for all scores\n");
}

OrderedJson early_update_json(const EarlyUpdateGain& gain) {
  return {{"train_beside_scoring", gains(gain) ? gain.minibatches : 0},
          {"step_s", gain.early_s},
          {"waiting_step_s", gain.whole_s}};
}

}  // namespace braid::inline search
