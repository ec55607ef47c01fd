// Updates that begin with what has finished when a generation is handed over, simulated.
#include <gmock/gmock.h>

#include "program/early_update_testing.h"
#include "sim/testing.h"

namespace braid::inline sim {
namespace {

// Log-normal lengths of 256 samples; training on the first half of the devices.
PlanningProblem with_a_tail(int64_t minibatches) {
  PlanningProblem problem = scored_beside(64, minibatches);
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = 4096;
  return problem;
}

ExecutionPlan apart(const PlanningProblem& problem, bool streams) {
  ExecutionPlan plan = in_halves(problem, {"update_actor", "old_logprob", "ref_logprob"}, 0);
  for (CallPlan& call : plan.calls)
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
  plan.fusion.migrate_below_samples = 32;
  plan.fusion.train_beside_generation = streams;
  return plan;
}

// Of one mini-batch nearly all is trained before the generation ends.
TEST(StreamedUpdatePrices, TrainsBesideTheGeneration) {
  const PlanningProblem problem = with_a_tail(1);
  const Trace whole = traced(apart(problem, false), problem),
              early = traced(apart(problem, true), problem);
  const CallSummary &before = summary_named(whole, "update_actor"),
                    &now = summary_named(early, "update_actor");
  EXPECT_GE(before.start_s, summary_named(whole, "generate").end_s);
  EXPECT_LT(now.start_s, summary_named(early, "generate").end_s);
  const double update_s = before.end_s - before.start_s;
  std::printf("step %.3f s, streamed %.3f s, update %.3f s\n", whole.step_s, early.step_s,
              update_s);
  EXPECT_GT(whole.step_s - early.step_s, 0.4 * update_s);
  EXPECT_LT(whole.step_s - early.step_s, update_s);
  // The same work: micro-batches of a part are others.
  EXPECT_NEAR(now.busy_s, before.busy_s, 0.05 * before.busy_s);
  EXPECT_EQ(now.rounds, 1);
  EXPECT_NEAR(summary_named(early, "generate").end_s, summary_named(whole, "generate").end_s, 1e-3);
}

// Of four the first alone begins.
TEST(StreamedUpdatePrices, OfSeveralMiniBatchesTheFirstBegins) {
  const PlanningProblem problem = with_a_tail(4);
  const Trace whole = traced(apart(problem, false), problem),
              early = traced(apart(problem, true), problem);
  const CallSummary& before = summary_named(whole, "update_actor");
  const double update_s = before.end_s - before.start_s;
  EXPECT_GT(whole.step_s - early.step_s, 0.1 * update_s);
  EXPECT_LT(whole.step_s - early.step_s, 0.3 * update_s);
  EXPECT_EQ(summary_named(early, "update_actor").rounds, 4);
}

}  // namespace
}  // namespace braid::inline sim
