// Weights that come over behind their update, on emulated ranks: as long as predicted, op by op.
#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "program/early_update_testing.h"

namespace braid::inline emulate {
namespace {

// The first half trains, the actor in another layout than it generates in, the second does all
// else.
ExecutionPlan sync_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = in_halves(problem, {"update_actor", "update_critic"}, 0);
  for (CallPlan& call : plan.calls)
    if (call.call == "update_actor") call.strategy.dp /= 2, call.strategy.tp = 2;
  plan.fusion.sync_beside_training = true;
  return plan;
}

void expect_as_predicted(World& world, int devices) {
  const PlanningProblem problem = make_test_problem({.algorithm = "ppo",
                                                     .actor = "qwen2.5-0.5b",
                                                     .critic = "qwen2.5-0.5b",
                                                     .gpu = "b200",
                                                     .nodes = (devices + 7) / 8,
                                                     .devices = std::min(devices, 8),
                                                     .prompts = 8 * devices});
  const Emulation out = emulated(world, sync_plan(problem), problem, {.time_scale = 0.2});
  EXPECT_THAT(out.misplaced, testing::IsEmpty());
  if (world.global_rank() != 0) return;
  const TraceDifference difference = compare_ops(out.predicted, out.emulated);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_LT(difference.largest, 0.1) << emulation_text(out);
}

RANK_TEST(WeightSync, EveryOpIsWhereItIsPredicted, 4) { expect_as_predicted(world, 4); }

FULL_RANK_TEST(WeightSync, EveryOpIsWhereItIsPredictedOnSixteen, 16) {
  expect_as_predicted(world, 16);
}

}  // namespace
}  // namespace braid::inline emulate
