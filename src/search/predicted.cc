#include "search/predicted.h"

#include "base/text.h"
#include "program/compile_to_price.h"
#include "search/migration.h"
#include "sim/simulate.h"

namespace braid::inline search {
namespace {

constexpr uint64_t kDraws = 4;

Result<double> mean_over_draws(const ExecutionPlan& plan, const PlanningProblem& problem,
                               const Calibration& calibration) {
  BRAID_ASSIGN(const Program program, compile_to_price(plan, problem));
  double sum = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    SimOptions options;
    options.seed = seed;
    BRAID_ASSIGN(const Trace trace, simulate(program, problem, calibration, options));
    sum += trace.step_s;
  }
  return sum / static_cast<double>(kDraws);
}

constexpr const char* kKey = "fusion.predicted_lengths";

}  // namespace

bool PredictedGain::pays() const { return predicted_s < (1 - kNoGain) * in_order_s; }

Result<PredictedGain> predicted_gain(ExecutionPlan plan, const PlanningProblem& problem,
                                     const Calibration& calibration) {
  PredictedGain out{0, 0, kLengthCorrelation};
  plan.fusion.predicted_lengths = true;
  BRAID_ASSIGN(out.predicted_s, mean_over_draws(plan, problem, calibration));
  plan.fusion.predicted_lengths = false;
  BRAID_ASSIGN(out.in_order_s, mean_over_draws(plan, problem, calibration));
  return out;
}

std::string predicted_text(const Result<PredictedGain>& gain) {
  const std::string what = "predicted lengths: ";
  if (!gain.ok()) return cat(what, "not possible: ", cause_alone(gain.status(), kKey), "\n");
  const std::string steps = cat("the step takes ", fixed_text(gain->predicted_s, 3), " s, ",
                                fixed_text(gain->in_order_s, 3), " s in order");
  const std::string where =
      cat("where predictions correlate by ", fixed_text(gain->correlation, 2), " with lengths");
  return gain->pays() ? cat(what, "fusion: {predicted_lengths: true}: ", steps, ", ", where, "\n")
                      : cat(what, "not worth it: ", steps, ", ", where, "\n");
}

OrderedJson predicted_json(const Result<PredictedGain>& gain) {
  if (!gain.ok()) return {{"possible", false}, {"why_not", cause_alone(gain.status(), kKey)}};
  return {{"possible", true},
          {"predicted_lengths", gain->pays()},
          {"step_s", gain->predicted_s},
          {"in_order_step_s", gain->in_order_s},
          {"correlation", gain->correlation}};
}

}  // namespace braid::inline search
