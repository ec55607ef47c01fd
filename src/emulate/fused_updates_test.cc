// Fused updates on emulated ranks: as long as predicted, and as much shorter than those of one call
// after those of the other. Shapes are those of published instances
// (fuse/published_instances.h).
#include <gmock/gmock.h>

#include <cstdio>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "plan/test_problem.h"

namespace braid::inline emulate {
namespace {

constexpr double kOfMakespan = 0.03, kOfSpeedUp = 0.05;

// A pipeline of the actor over all ranks, and copies of one of the critic, each in reverse over
// ranks that follow each other.
struct FusedShape {
  int stages, critic_stages;
  int64_t micro_batches, critic_micro_batches;
};

PlanningProblem problem_of(const FusedShape& shape) {
  return make_test_problem({.algorithm = "ppo",
                            .actor = "qwen2.5-32b",
                            .critic = "qwen2.5-14b",
                            .gpu = "h100-80g",
                            .nodes = shape.stages / 8,
                            .prompts = shape.micro_batches,
                            .minibatches = 1,
                            .prompt_tokens = 512,
                            .response_tokens = 64});
}

ExecutionPlan plan_of(const FusedShape& shape, const PlanningProblem& problem, bool fused) {
  ExecutionPlan plan = uniform_plan(problem, shape.stages / 8, 8, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "update_actor") {
      call.strategy = {};
      call.strategy.pp = shape.stages, call.strategy.micro_batches = shape.micro_batches;
    }
    if (call.call != "update_critic") continue;
    const int copies = shape.stages / shape.critic_stages;
    call.strategy = {};
    call.strategy.dp = copies, call.strategy.pp = shape.critic_stages;
    call.strategy.micro_batches = shape.critic_micro_batches;
    call.mesh.devices.clear();
    for (int stage = shape.critic_stages - 1; stage >= 0; --stage)
      for (int copy = 0; copy < copies; ++copy)
        call.mesh.devices.push_back(DeviceId{copy * shape.critic_stages + stage});
  }
  plan.fusion.train_schedules = fused;
  if (fused) plan.fusion.units = 4;
  return plan;
}

// From the first start to the last end of what the updates compute.
double training_s(const Graph& graph, const Trace& trace) {
  double first = trace.step_s, last = 0;
  for (const TraceEvent& event : trace.events) {
    const bool computes = event.kind == EventKind::kForward || event.kind == EventKind::kBackward ||
                          event.kind == EventKind::kOptimizer;
    if (!computes || graph.calls[event.call.value].kind != CallKind::kTrainStep) continue;
    first = std::min(first, event.start_s), last = std::max(last, event.end_s);
  }
  return last - first;
}

struct Lengths {
  double predicted = 0, emulated = 0;
};

// Of the updates, on rank 0.
Lengths lengths_of(World& world, const FusedShape& shape, bool fused, double jitter = 0) {
  const PlanningProblem problem = problem_of(shape);
  const Emulation out =
      emulated(world, plan_of(shape, problem, fused), problem, {.jitter = jitter});
  EXPECT_THAT(out.misplaced, testing::IsEmpty());
  if (world.global_rank() != 0) return {};
  EXPECT_EQ(compare_ops(out.predicted, out.emulated).unpaired, 0);
  return {training_s(problem.graph, out.predicted), training_s(problem.graph, out.emulated)};
}

// What a busy machine adds to the times of devices only makes them longer: the shortest of a few.
Lengths shortest_of(World& world, const FusedShape& shape, bool fused) {
  constexpr int kTries = 3;
  Lengths out = lengths_of(world, shape, fused);
  for (int i = 1; i < kTries; ++i)
    out.emulated = std::min(out.emulated, lengths_of(world, shape, fused).emulated);
  return out;
}

void expect_as_predicted(World& world, const FusedShape& shape) {
  SCOPED_TRACE(cat(shape.stages, " and ", shape.critic_stages, " stages, ", shape.micro_batches,
                   " and ", shape.critic_micro_batches, " micro-batches"));
  const Lengths apart = shortest_of(world, shape, false), fused = shortest_of(world, shape, true);
  if (world.global_rank() != 0 || testing::Test::HasFatalFailure()) return;
  const double predicted = apart.predicted / fused.predicted;
  const double emulated = apart.emulated / fused.emulated;
  std::fprintf(stderr,
               "%d/%d stages, %d/%d micro-batches: fused %.4f s predicted, %.4f emulated; apart "
               "%.4f, %.4f; speed-up %.4f, %.4f\n",
               shape.stages, shape.critic_stages, static_cast<int>(shape.micro_batches),
               static_cast<int>(shape.critic_micro_batches), fused.predicted, fused.emulated,
               apart.predicted, apart.emulated, predicted, emulated);
  EXPECT_GT(predicted, 1.05);
  EXPECT_NEAR(fused.emulated / fused.predicted, 1, kOfMakespan);
  EXPECT_NEAR(emulated / predicted, 1, kOfSpeedUp);
}

FULL_RANK_TEST(FusedUpdates, AreAsLongAsPredictedOnEight, 8) {
  for (const FusedShape& shape : {FusedShape{8, 4, 16, 8}, FusedShape{8, 4, 8, 4},
                                  FusedShape{8, 8, 16, 16}, FusedShape{8, 8, 8, 8}})
    expect_as_predicted(world, shape);
}

FULL_RANK_TEST(FusedUpdates, AreAsLongAsPredictedOnSixteen, 16) {
  for (const FusedShape& shape :
       {FusedShape{16, 8, 16, 8}, FusedShape{16, 16, 16, 16}, FusedShape{16, 16, 32, 32}})
    expect_as_predicted(world, shape);
}

// The order is executed, not its times: what takes a fifth more or less delays the updates by no
// more than that, and nothing is out of its place.
FULL_RANK_TEST(FusedUpdates, KeepTheirOrderUnderJitter, 8) {
  const Lengths fused = lengths_of(world, {8, 4, 16, 8}, true, 0.2);
  if (world.global_rank() != 0 || testing::Test::HasFailure()) return;
  EXPECT_GT(fused.emulated, 0.95 * fused.predicted);
  EXPECT_LT(fused.emulated, 1.2 * fused.predicted);
}

}  // namespace
}  // namespace braid::inline emulate
