// Context and expert parallelism, hybrid sharding and precision: what they are priced at, and what
// of them is refused.
#include <gmock/gmock.h>

#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "sim/call_cost.h"
#include "sim/simulate.h"

namespace braid::inline sim {
namespace {

using testing::HasSubstr;

PlanningProblem long_context(const std::string& actor) {
  TestProblem test;
  test.algorithm = "grpo", test.actor = actor, test.gpu = "h100-80g", test.nodes = 2;
  test.prompts = 16, test.samples = 4, test.minibatches = 1;
  test.prompt_tokens = 1024, test.response_tokens = 15360;
  return make_test_problem(test);
}

ExecutionPlan with_update(const PlanningProblem& problem, const Strategy& strategy) {
  ExecutionPlan plan = uniform_plan(problem, 4, 4, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "update_actor") call.strategy = strategy;
  return plan;
}

Strategy update(int dp, int cp, int tp) {
  Strategy strategy;
  strategy.dp = dp, strategy.cp = cp, strategy.tp = tp;
  strategy.zero_stage = 1, strategy.recompute = Recompute::kFull;
  return strategy;
}

CallCost cost_of(const PlanningProblem& problem, const ExecutionPlan& plan) {
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  for (size_t i = 0; i < problem.graph.calls.size(); ++i)
    if (problem.graph.calls[i].name == "update_actor")
      return *CallCost::make(*program, CallId{static_cast<int32_t>(i)}, problem,
                             committed_calibration());
  BRAID_CHECK(false, "a graph without update_actor");
}

double step_s(const PlanningProblem& problem, const ExecutionPlan& plan) {
  EXPECT_TRUE(validate(plan, problem).ok()) << validate(plan, problem).message();
  const auto program = compile(plan, problem);
  return simulate(*program, problem, committed_calibration(), {})->step_s;
}

TEST(ContextParallel, SharesTokensAndHoldsAllWeights) {
  const PlanningProblem problem = long_context("qwen2.5-7b");
  const CallCost one = cost_of(problem, with_update(problem, update(8, 1, 2)));
  const CallCost two = cost_of(problem, with_update(problem, update(4, 2, 2)));
  const MicroBatch whole = one.micro_batch({{16384}}), half = two.micro_batch({{16384}});
  EXPECT_DOUBLE_EQ(half.tokens, whole.tokens / 2);
  EXPECT_DOUBLE_EQ(half.context, whole.context);
  EXPECT_LT(two.forward_s(half, 0), one.forward_s(whole, 0));
  EXPECT_GT(two.forward_s(half, 0), one.forward_s(whole, 0) / 2) << "the ring is not free";
  EXPECT_DOUBLE_EQ(two.weight_bytes(0), one.weight_bytes(0));
  EXPECT_DOUBLE_EQ(two.optimizer_bytes(0), one.optimizer_bytes(0)) << "sharded over dp x cp";
  EXPECT_DOUBLE_EQ(two.activation_bytes(half, 0), one.activation_bytes(whole, 0) / 2);
}

TEST(ContextParallel, OneSequenceOnAllDevicesIsFasterThanOnOne) {
  PlanningProblem problem = long_context("qwen2.5-7b");
  problem.workload.prompts = 2, problem.workload.samples_per_prompt = 2;
  const double split = step_s(problem, with_update(problem, update(2, 2, 4)));
  EXPECT_LT(split, step_s(problem, with_update(problem, update(4, 1, 4))) * 1.2);
  EXPECT_GT(split, 0);
}

TEST(ExpertParallel, CutsRoutedExpertsOnly) {
  const PlanningProblem problem = long_context("qwen3-30b-a3b");
  Strategy whole = update(8, 1, 2), spread = whole, narrow = whole;
  spread.ep = 8;
  narrow.ep = 8, narrow.expert_tp = 1;
  const double together = cost_of(problem, with_update(problem, whole)).weight_bytes(0);
  const double apart = cost_of(problem, with_update(problem, spread)).weight_bytes(0);
  const double alone = cost_of(problem, with_update(problem, narrow)).weight_bytes(0);
  const ModelSize& size = model_of(problem, RoleId{"actor"}).spec;
  const double routed = 2 * static_cast<double>(routed_expert_params(size));
  EXPECT_NEAR(together - apart, routed / 2 - routed / 16, 1e-3 * routed);
  EXPECT_NEAR(alone - apart, routed / 8 - routed / 16, 1e-3 * routed);
}

TEST(HybridSharding, HoldsLessSharedStateAndReducesAmongGroups) {
  const PlanningProblem problem = long_context("qwen2.5-7b");
  Strategy all = update(16, 1, 1), groups = all;
  all.zero_stage = groups.zero_stage = 3;
  groups.zero_ranks = 8;
  const CallCost wide = cost_of(problem, with_update(problem, all));
  const CallCost inside = cost_of(problem, with_update(problem, groups));
  EXPECT_NEAR(inside.weight_bytes(0), 2 * wide.weight_bytes(0), 1e-6 * inside.weight_bytes(0));
  EXPECT_DOUBLE_EQ(inside.optimizer_bytes(0), 2 * wide.optimizer_bytes(0));
  const MicroBatch tiny = wide.micro_batch({{16}});
  EXPECT_LT(inside.forward_s(tiny, 0), wide.forward_s(tiny, 0)) << "gathers stay in a node";
}

TEST(CallPrecision, NarrowProductsAreFaster) {
  const PlanningProblem problem = long_context("qwen2.5-7b");
  Strategy narrow = update(8, 1, 2);
  narrow.precision = Precision::kFp8;
  EXPECT_LT(step_s(problem, with_update(problem, narrow)),
            step_s(problem, with_update(problem, update(8, 1, 2))));
}

TEST(ParallelAxes, AreReadBackEqual) {
  const PlanningProblem problem = long_context("qwen3-30b-a3b");
  Strategy s = update(4, 2, 2);
  s.ep = 4, s.expert_tp = 1, s.zero_stage = 3, s.zero_ranks = 4, s.precision = Precision::kFp8;
  const ExecutionPlan plan = with_update(problem, s);
  EXPECT_EQ(*parse_plan(plan_to_yaml(plan), "plan", &problem.cluster), plan);
  EXPECT_EQ(*plan_from_json(plan_json(plan)), plan);
}

struct Refused {
  const char* name;
  void (*change)(Strategy&);
  const char* error;
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class RefusedAxes : public testing::TestWithParam<Refused> {};

TEST_P(RefusedAxes, WithARemedy) {
  PlanningProblem problem = long_context("qwen3-30b-a3b");
  if (GetParam().name == std::string("old_device"))
    problem.cluster = *make_cluster(*find_gpu("a100-80g"), 2, 8);
  Strategy strategy = update(8, 1, 2);
  GetParam().change(strategy);
  const Status status = validate(with_update(problem, strategy), problem);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, RefusedAxes,
    testing::ValuesIn(std::vector<Refused>{
        {"product", [](Strategy& s) { s.cp = 3; }, "dp x cp x tp x pp = 8 x 3 x 2 x 1 = 48"},
        {"experts", [](Strategy& s) { s.ep = 3; }, "nearest legal values: 2 and 4"},
        {"expert_grid", [](Strategy& s) { s.ep = 32; }, "must divide the 16 devices"},
        {"shards", [](Strategy& s) { s.zero_ranks = 3; }, "zero_ranks 3 must divide the 8"},
        {"no_shards", [](Strategy& s) { s.zero_ranks = 2, s.zero_stage = 0; }, "needs zero above"},
        {"old_device", [](Strategy& s) { s.precision = Precision::kFp8; },
         "does not support fp8"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::inline sim
