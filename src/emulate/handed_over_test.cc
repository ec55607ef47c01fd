// Generations that are handed over on emulated ranks: as long as predicted, op by op, and as much
// shorter than those of the plan without. Times are those of the devices' clocks.
#include <gmock/gmock.h>

#include <cstdio>

#include "comm/rank_testing.h"
#include "emulate/testing.h"
#include "plan/test_problem.h"

namespace braid::inline emulate {
namespace {

constexpr double kOfScoring = 0.03;

// Responses with a tail: a few are eight times as long as most.
PlanningProblem problem_of(const std::string& model, int nodes, int devices) {
  PlanningProblem problem = make_test_problem({.algorithm = "ppo",
                                               .actor = model,
                                               .critic = model,
                                               .gpu = "b200",
                                               .nodes = nodes,
                                               .devices = devices,
                                               .prompts = 32 * nodes * devices,
                                               .minibatches = 1,
                                               .prompt_tokens = 1024,
                                               .response_tokens = 256});
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = 2048;
  return problem;
}

ExecutionPlan plan_of(const PlanningProblem& problem, int dp, int tp, int64_t below) {
  ExecutionPlan plan = uniform_plan(problem, dp, tp, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call != "generate") call.strategy.micro_tokens = 8192;
    if (call.call.starts_with("update")) call.strategy.zero_stage = 3;  // room for caches
  }
  plan.fusion.migrate_below_samples = below;
  return plan;
}

// When the last of generation and scoring ends.
double scored_s(const Graph& graph, const Trace& trace) {
  double out = 0;
  for (const CallSummary& call : trace.calls)
    if (graph.calls[call.call.value].kind == CallKind::kInfer) out = std::max(out, call.end_s);
  return out;
}

struct Scored {
  double predicted = 0, emulated = 0;
  int64_t messages = 0;  // of samples that move, and of caches that are copied ahead
};

int64_t messages_of_samples(const Graph& graph, const Trace& trace) {
  return std::count_if(trace.events.begin(), trace.events.end(), [&](const TraceEvent& event) {
    return event.kind == EventKind::kExchange && event.peer.value >= 0 &&
           event.device != event.peer && graph.calls[event.call.value].kind == CallKind::kGenerate;
  });
}

// On rank 0.
Scored scored(World& world, const PlanningProblem& problem, const ExecutionPlan& plan,
              double time_scale = 0) {
  const Emulation out = emulated(world, plan, problem, {.time_scale = time_scale});
  EXPECT_THAT(out.misplaced, testing::IsEmpty());
  if (world.global_rank() != 0) return {};
  const TraceDifference difference = compare_ops(out.predicted, out.emulated);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_LT(difference.largest, 0.1) << emulation_text(out);
  return {scored_s(problem.graph, out.predicted), scored_s(problem.graph, out.emulated),
          messages_of_samples(problem.graph, out.emulated)};
}

// Samples move with their caches and without, and the ranks of two replicas' tensor parallelism
// each to its counterpart.
RANK_TEST(HandedOver, EveryOpIsWhereItIsPredicted, 4) {
  const PlanningProblem problem = problem_of("qwen2.5-0.5b", 1, 4);
  ExecutionPlan plan = plan_of(problem, 2, 2, 16);
  scored(world, problem, plan, 0.2);
  plan.fusion.migrate_cache = false;
  plan.fusion.predicted_lengths = true;
  scored(world, problem, plan, 0.2);
}

// Handed over again, where those that are free score meanwhile.
RANK_TEST(HandedOver, AgainEveryOpIsWhereItIsPredicted, 4) {
  const PlanningProblem problem = problem_of("qwen2.5-0.5b", 1, 4);
  ExecutionPlan plan = plan_of(problem, 4, 1, 40);
  plan.fusion.migrate_again_below = {16, 4};
  scored(world, problem, plan, 0.2);
}

// Those that are free score beginnings of what is left, which come by messages of their own.
RANK_TEST(HandedOver, BeginningsAreScoredAsPredicted, 4) {
  const PlanningProblem problem = problem_of("qwen2.5-0.5b", 1, 4);
  ExecutionPlan plan = plan_of(problem, 4, 1, 40);
  plan.fusion.scored_prefixes = true;
  scored(world, problem, plan, 0.2);
  plan = plan_of(problem, 2, 2, 16);
  plan.fusion.scored_prefixes = true;
  plan.fusion.migrate_again_below = {4};
  scored(world, problem, plan, 0.2);
}

// Caches are copied ahead, beside the rounds, and what came since moves at the hand-over.
RANK_TEST(HandedOver, CopiesAheadAreWhereTheyArePredicted, 4) {
  const PlanningProblem problem = problem_of("qwen2.5-0.5b", 1, 4);
  for (const int tp : {2, 1}) {
    ExecutionPlan plan = plan_of(problem, 4 / tp, tp, 24);
    if (tp == 1) plan.fusion.migrate_again_below = {8};
    const int64_t at_once = scored(world, problem, plan, 0.2).messages;
    plan.fusion.pre_copy_below_samples = 40;
    const int64_t ahead = scored(world, problem, plan, 0.2).messages;
    EXPECT_TRUE(world.global_rank() != 0 || ahead > at_once) << ahead << ", " << at_once;
  }
}

// What a busy machine adds to the times of devices only makes them longer: the shortest of a few.
Scored shortest_of(World& world, const PlanningProblem& problem, const ExecutionPlan& plan) {
  Scored out = scored(world, problem, plan);
  for (int i = 1; i < 3; ++i)
    out.emulated = std::min(out.emulated, scored(world, problem, plan).emulated);
  return out;
}

void expect_as_predicted(World& world, const PlanningProblem& problem, int dp, int tp,
                         int64_t below, const std::vector<int64_t>& again = {},
                         bool prefixes = false, int64_t pre_copy = 0) {
  const Scored apart = shortest_of(world, problem, plan_of(problem, dp, tp, 0));
  ExecutionPlan plan = plan_of(problem, dp, tp, below);
  plan.fusion.migrate_again_below = again, plan.fusion.scored_prefixes = prefixes;
  plan.fusion.pre_copy_below_samples = pre_copy;
  const Scored handed = shortest_of(world, problem, plan);
  if (world.global_rank() != 0 || testing::Test::HasFailure()) return;
  std::fprintf(stderr,
               "dp %d, tp %d: scored after %.3f s predicted, %.3f emulated; without %.3f, %.3f\n",
               dp, tp, handed.predicted, handed.emulated, apart.predicted, apart.emulated);
  EXPECT_LT(handed.predicted, apart.predicted);
  EXPECT_NEAR(handed.emulated / handed.predicted, 1, kOfScoring);
  EXPECT_NEAR((apart.emulated / handed.emulated) / (apart.predicted / handed.predicted), 1,
              kOfScoring);
}

FULL_RANK_TEST(HandedOver, IsAsLongAsPredictedOnEight, 8) {
  expect_as_predicted(world, problem_of("qwen2.5-7b", 1, 8), 8, 1, 40);
  expect_as_predicted(world, problem_of("qwen2.5-7b", 1, 8), 4, 2, 40);
  expect_as_predicted(world, problem_of("qwen2.5-7b", 1, 8), 8, 1, 40, {12});
  expect_as_predicted(world, problem_of("qwen2.5-7b", 1, 8), 8, 1, 20, {}, true);
}

FULL_RANK_TEST(HandedOver, CopiesAheadAreAsLongAsPredictedOnEight, 8) {
  expect_as_predicted(world, problem_of("qwen2.5-7b", 2, 4), 8, 1, 40, {}, false, 64);
}

FULL_RANK_TEST(HandedOver, IsAsLongAsPredictedOnSixteen, 16) {
  expect_as_predicted(world, problem_of("qwen2.5-7b", 2, 8), 16, 1, 80);
  expect_as_predicted(world, problem_of("qwen2.5-7b", 2, 8), 16, 1, 80, {24}, true);
}

}  // namespace
}  // namespace braid::inline emulate
