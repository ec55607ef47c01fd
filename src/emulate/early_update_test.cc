// Updates that begin while the samples of their later mini-batches are still scored, on emulated
// ranks: as long as predicted, op by op.
#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "program/early_update_testing.h"

namespace braid::inline emulate {
namespace {

void expect_where_predicted(World& world, const ExecutionPlan& plan,
                            const PlanningProblem& problem) {
  const Emulation out = emulated(world, plan, problem, {.time_scale = 0.2});
  EXPECT_THAT(out.misplaced, testing::IsEmpty());
  if (world.global_rank() != 0) return;
  const TraceDifference difference = compare_ops(out.predicted, out.emulated);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_LT(difference.largest, 0.1) << emulation_text(out);
}

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

}  // namespace
}  // namespace braid::inline emulate
