#include "search/early_update.h"

#include "base/text.h"
#include "search/migration.h"
#include "search/parts.h"

namespace braid::inline search {
namespace {

constexpr const char* kEarlyKey = "fusion.train_beside_scoring";

Result<double> step_of(const ExecutionPlan& plan, const PlanningProblem& problem,
                       const Calibration& calibration) {
  BRAID_ASSIGN(const Verdict verdict, simulate_plan(plan, problem, calibration, {}));
  if (!verdict.fits) return Status(Code::kInfeasible, verdict.reason);
  return verdict.step_s;
}

bool gains(const EarlyUpdateGain& gain) { return gain.early_s < (1 - kNoGain) * gain.whole_s; }

}  // namespace

Result<EarlyUpdateGain> early_update_gain(ExecutionPlan plan, const PlanningProblem& problem,
                                          const Calibration& calibration) {
  plan.fusion.train_beside_scoring = 0;
  BRAID_ASSIGN(const double whole_s, step_of(plan, problem, calibration));
  Result<EarlyUpdateGain> best =
      invalid_input(cat(kEarlyKey, ": an epoch has one mini-batch (train.minibatches)"));
  for (const int64_t first : numbers_beside_scoring(problem)) {
    plan.fusion.train_beside_scoring = first;
    const Result<double> early_s = step_of(plan, problem, calibration);
    if (!early_s.ok() && !best.ok()) best = early_s.status();
    if (early_s.ok() && (!best.ok() || *early_s < best->early_s))
      best = EarlyUpdateGain{first, *early_s, whole_s};
  }
  return best;
}

std::string early_update_text(const Result<EarlyUpdateGain>& gain) {
  const std::string what = "training beside scoring: ";
  if (!gain.ok()) return cat(what, "not possible: ", cause_alone(gain.status(), kEarlyKey), "\n");
  return cat(what,
             gains(*gain) ? cat("fusion: {train_beside_scoring: ", gain->minibatches, "}")
                          : std::string("not worth it"),
             ": the step takes ", fixed_text(gain->early_s, 3), " s, ",
             fixed_text(gain->whole_s, 3), " s where the update waits for all scores\n");
}

OrderedJson early_update_json(const Result<EarlyUpdateGain>& gain) {
  if (!gain.ok()) return {{"possible", false}, {"why_not", cause_alone(gain.status(), kEarlyKey)}};
  return {{"possible", true},
          {"train_beside_scoring", gains(*gain) ? gain->minibatches : 0},
          {"step_s", gain->early_s},
          {"waiting_step_s", gain->whole_s}};
}

}  // namespace braid::inline search
