// Updates that begin while the samples of their later mini-batches are still scored, on emulated
// ranks: as long as predicted, op by op.
#include <gmock/gmock.h>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "plan/test_problem.h"
#include "plan/validate.h"

namespace braid::inline emulate {
namespace {

// Two replicas learn in two stages, the others' devices generate and score.
RANK_TEST(EarlyUpdate, EveryOpIsWhereItIsPredicted, 4) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo",
                                                     .actor = "qwen2.5-0.5b",
                                                     .gpu = "b200",
                                                     .devices = 4,
                                                     .prompts = 32,
                                                     .samples = 4,
                                                     .minibatches = 4,
                                                     .prompt_tokens = 512,
                                                     .response_tokens = 512});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  for (CallPlan& call : plan.calls) {
    const bool learns = call.call == "update_actor" || call.call == "old_logprob";
    call.mesh = *contiguous_mesh(problem.cluster, learns ? 0 : 2, 2);
    if (call.call == "update_actor") call.strategy.dp = 1, call.strategy.pp = 2;
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
  }
  plan.fusion.train_beside_scoring = 1;
  const Emulation out = emulated(world, plan, problem, {.time_scale = 0.2});
  EXPECT_THAT(out.misplaced, testing::IsEmpty());
  if (world.global_rank() != 0) return;
  const TraceDifference difference = compare_ops(out.predicted, out.emulated);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_LT(difference.largest, 0.1) << emulation_text(out);
}

}  // namespace
}  // namespace braid::inline emulate
