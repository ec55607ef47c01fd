// Updates that begin while the samples of their later mini-batches are still scored, on emulated
// ranks: as long as predicted, op by op.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "program/early_update_testing.h"

namespace braid::inline emulate {
namespace {

// Two replicas learn in two stages, the others' devices generate and score.
RANK_TEST(EarlyUpdate, EveryOpIsWhereItIsPredicted, 4) {
  const PlanningProblem problem = scored_beside(32, 4);
  ExecutionPlan plan = in_halves(problem, {"update_actor", "old_logprob"}, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "update_actor") call.strategy.dp = 1, call.strategy.pp = 2;
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
  }
  expect_where_predicted(world, plan, problem);
}

// Behind a generation that is handed over, too.
RANK_TEST(EarlyUpdate, EveryOpBehindAHandOverIsWhereItIsPredicted, 4) {
  PlanningProblem problem = scored_beside(32, 4);
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = 2048;
  ExecutionPlan plan = in_halves(problem, {"update_actor"}, 1);
  plan.fusion.migrate_below_samples = 24;
  for (CallPlan& call : plan.calls)
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
  expect_where_predicted(world, plan, problem);
}

// As long as predicted as a whole, and as much shorter than where the update waits for all.
void expect_as_long_as_predicted(World& world, int devices) {
  const PlanningProblem problem = scored_beside(16 * devices, 4, devices);
  StepTimes took[2];
  for (const int64_t beside : {0, 1}) {
    ExecutionPlan plan = in_halves(problem, {"update_actor"}, beside);
    for (CallPlan& call : plan.calls)
      if (call.call != "generate") call.strategy.micro_tokens = 8192;
    took[beside] = step_times(world, plan, problem);
  }
  if (world.global_rank() != 0) return;
  const auto& [whole, early] = took;
  std::fprintf(stderr, "%d devices: %.3f s predicted, %.3f emulated; waits for all %.3f, %.3f\n",
               devices, early.predicted_s, early.emulated_s, whole.predicted_s, whole.emulated_s);
  constexpr double kOfStep = 0.03;
  EXPECT_LT(early.predicted_s, 0.99 * whole.predicted_s);
  EXPECT_NEAR(early.emulated_s / early.predicted_s, 1, kOfStep);
  EXPECT_NEAR((whole.emulated_s / early.emulated_s) / (whole.predicted_s / early.predicted_s), 1,
              kOfStep);
}

FULL_RANK_TEST(EarlyUpdate, IsAsLongAsPredictedOnEight, 8) {
  expect_as_long_as_predicted(world, 8);
}

FULL_RANK_TEST(EarlyUpdate, IsAsLongAsPredictedOnSixteen, 16) {
  expect_as_long_as_predicted(world, 16);
}

}  // namespace
}  // namespace braid::inline emulate
