// Prices of weights that come over behind their update, beside the other one.
#include <gmock/gmock.h>

#include "program/early_update_testing.h"
#include "sim/testing.h"

namespace braid::inline sim {
namespace {

// Two nodes: the first trains, in stages; the second does all else.
ExecutionPlan sync_plan(const PlanningProblem& problem, bool early) {
  ExecutionPlan plan = in_halves(problem, {"update_actor", "update_critic"}, 0);
  for (CallPlan& call : plan.calls)
    if (call.call.starts_with("update_"))
      call.strategy.dp = 4, call.strategy.pp = 2, call.strategy.micro_batches = 4;
  plan.fusion.sync_beside_training = early;
  return plan;
}

// A step is shorter by what the weights take, which the generation no longer waits for; what it
// begins with takes room all the time.
TEST(WeightSyncPrices, HidesTheWayOfTheWeights) {
  const PlanningProblem problem = make_test_problem(
      {.algorithm = "ppo", .actor = "qwen2.5-7b", .nodes = 2, .devices = 8, .prompts = 64});
  const Trace late = traced(sync_plan(problem, false), problem),
              early = traced(sync_plan(problem, true), problem);
  const double waited_s =
      summary_named(late, "generate").start_s - summary_named(late, "fetch").end_s;
  EXPECT_GT(waited_s, 0.02);
  EXPECT_NEAR(summary_named(early, "generate").start_s, summary_named(early, "fetch").end_s, 1e-3);
  EXPECT_NEAR(late.step_s - early.step_s, waited_s, 0.1 * waited_s);
  EXPECT_LT(summary_named(early, "update_actor").end_s,
            summary_named(early, "update_critic").start_s + 1e-3);
}

}  // namespace
}  // namespace braid::inline sim
