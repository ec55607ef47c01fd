// Updates that begin while the samples of their later mini-batches are still scored, simulated.
#include <gmock/gmock.h>

#include "program/early_update_testing.h"
#include "sim/testing.h"

namespace braid::inline sim {
namespace {

// The update on the first half of the devices, the rest on the other.
ExecutionPlan beside_plan(const PlanningProblem& problem, int64_t first) {
  ExecutionPlan plan = in_halves(problem, {"update_actor"}, first);
  for (CallPlan& call : plan.calls)
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
  return plan;
}

TEST(EarlyUpdatePrices, TrainsBesideScoring) {
  const PlanningProblem problem = scored_beside(64, 8);
  const Trace whole = traced(beside_plan(problem, 0), problem);
  EXPECT_GE(summary_named(whole, "update_actor").start_s,
            summary_named(whole, "ref_logprob").end_s);
  const double scores_s =
      summary_named(whole, "ref_logprob").end_s - summary_named(whole, "old_logprob").start_s;
  for (const int64_t first : {1, 4}) {
    const Trace early = traced(beside_plan(problem, first), problem);
    EXPECT_LT(summary_named(early, "update_actor").start_s,
              summary_named(early, "ref_logprob").end_s);
    // All but the first part is scored beside the update.
    const double left = 1 - static_cast<double>(first) / 8;
    EXPECT_NEAR(whole.step_s - early.step_s, left * scores_s, 0.2 * scores_s) << first;
    EXPECT_EQ(summary_named(early, "update_actor").rounds, 8);
    EXPECT_NEAR(summary_named(early, "update_actor").busy_s,
                summary_named(whole, "update_actor").busy_s, 1e-9);
  }
}

// Behind a generation that is handed over, too: what is freed scores what has finished, and less is
// left to be scored beside the update.
TEST(EarlyUpdatePrices, BeginsBehindAHandOver) {
  PlanningProblem problem = scored_beside(64, 8);
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = 4096;
  const auto step = [&](int64_t first, int64_t below) {
    ExecutionPlan plan = beside_plan(problem, first);
    plan.fusion.migrate_below_samples = below;
    return traced(plan, problem);
  };
  const Trace both = step(1, 32);
  EXPECT_LT(summary_named(both, "ref_logprob").start_s, summary_named(both, "generate").end_s);
  EXPECT_LT(summary_named(both, "update_actor").start_s, summary_named(both, "ref_logprob").end_s);
  EXPECT_LT(both.step_s, step(0, 32).step_s);
  const auto beside_s = [](const Trace& trace) {
    return summary_named(trace, "ref_logprob").end_s - summary_named(trace, "update_actor").start_s;
  };
  EXPECT_LT(beside_s(both), beside_s(step(1, 0)));
}

}  // namespace
}  // namespace braid::inline sim
