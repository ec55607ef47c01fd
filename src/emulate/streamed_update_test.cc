// Updates that begin with what has finished when a generation is handed over, on emulated ranks: as
// long as predicted, op by op.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdio>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "program/early_update_testing.h"

namespace braid::inline emulate {
namespace {

PlanningProblem with_a_tail(int64_t prompts, int64_t minibatches, int devices) {
  PlanningProblem problem = scored_beside(prompts, minibatches, devices);
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = 2048;
  return problem;
}

ExecutionPlan apart(const PlanningProblem& problem, bool streams) {
  ExecutionPlan plan = in_halves(problem, {"update_actor", "old_logprob"}, 0);
  for (CallPlan& call : plan.calls)
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
  plan.fusion.migrate_below_samples = 32;
  plan.fusion.train_beside_generation = streams;
  return plan;
}

// One replica in two stages; and two, behind two hand-overs.
RANK_TEST(StreamedUpdate, EveryOpIsWhereItIsPredicted, 4) {
  const PlanningProblem problem = with_a_tail(32, 2, 4);
  ExecutionPlan plan = apart(problem, true);
  plan.fusion.migrate_again_below = {8};
  expect_where_predicted(world, plan, problem);
  for (CallPlan& call : plan.calls)
    if (call.call == "update_actor") call.strategy.dp = 1, call.strategy.pp = 2;
  plan.fusion.migrate_again_below.clear();
  expect_where_predicted(world, plan, problem);
}

// As long as predicted as a whole, and shorter than where the update waits for all.
void expect_streamed_as_predicted(World& world, int devices) {
  const PlanningProblem problem = with_a_tail(16 * devices, 1, devices);
  StepTimes took[2];
  for (const bool streams : {false, true})
    took[streams] = step_times(world, apart(problem, streams), problem);
  if (world.global_rank() != 0) return;
  std::printf("%d ranks: %.4f s, streamed %.4f s; emulated %.4f s and %.4f s\n", devices,
              took[0].predicted_s, took[1].predicted_s, took[0].emulated_s, took[1].emulated_s);
  EXPECT_LT(took[1].predicted_s, took[0].predicted_s);
  constexpr double kOfStep = 0.03;
  for (const bool streams : {false, true})
    EXPECT_NEAR(took[streams].emulated_s / took[streams].predicted_s, 1, kOfStep) << streams;
}

FULL_RANK_TEST(StreamedUpdate, TakesAsLongAsPredicted, 4) {
  expect_streamed_as_predicted(world, 4);
}
FULL_RANK_TEST(StreamedUpdate, OfEightRanksTakesAsLongAsPredicted, 8) {
  expect_streamed_as_predicted(world, 8);
}

}  // namespace
}  // namespace braid::inline emulate
