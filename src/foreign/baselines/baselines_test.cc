#include "foreign/baselines/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"

namespace braid::inline foreign {
namespace {

using testing::HasSubstr;

struct Where {
  const char* algorithm;
  int nodes, devices;
};
class EveryBaseline : public testing::TestWithParam<Where> {};

TEST_P(EveryBaseline, IsLegalOrSaysWhyNot) {
  const Where& where = GetParam();
  const PlanningProblem problem = make_test_problem({.algorithm = where.algorithm,
                                                     .nodes = where.nodes,
                                                     .devices = where.devices,
                                                     .prompts = 512});
  int made = 0;
  for (const Baseline& baseline : baselines()) {
    const auto plan = baseline.make(problem);
    if (!plan.ok()) {
      EXPECT_FALSE(plan.status().message().empty()) << baseline.name;
      EXPECT_EQ(exit_code(plan.status().code()), 2);
      continue;
    }
    ++made;
    const Status status = validate(*plan, problem);
    EXPECT_TRUE(status.ok()) << baseline.name << ": " << status.message() << "\n" << *plan;
  }
  EXPECT_GE(made, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Clusters, EveryBaseline,
    testing::Values(Where{"ppo", 1, 8}, Where{"ppo", 2, 8}, Where{"ppo", 16, 8}, Where{"ppo", 1, 1},
                    Where{"ppo", 1, 4}, Where{"ppo", 3, 8}, Where{"ppo", 4, 4}, Where{"ppo", 1, 16},
                    Where{"grpo", 1, 8}, Where{"grpo", 8, 8}, Where{"remax", 2, 8},
                    Where{"dpo", 2, 8}, Where{"sft", 1, 8}, Where{"rm", 4, 2}));

const CallPlan& entry(const ExecutionPlan& plan, const char* call) { return call_plan(plan, call); }

TEST(Baselines, AllOfThemPlanPpoOfSevenBillionOnTwoNodes) {
  const PlanningProblem problem = make_test_problem({.nodes = 2});
  for (const Baseline& baseline : baselines()) {
    const auto plan = baseline.make(problem);
    EXPECT_TRUE(plan.ok()) << baseline.name << ": " << plan.status().message();
  }
}

TEST(Baselines, DeepSpeedChatShardsEverythingOverEverything) {
  const ExecutionPlan plan = *deepspeed_chat_plan(make_test_problem({.nodes = 2}));
  for (const CallPlan& call : plan.calls) EXPECT_EQ(call.mesh.devices.size(), 16u);
  EXPECT_EQ(entry(plan, "update_actor").strategy.zero_stage, 3);
  EXPECT_EQ(entry(plan, "ref_logprob").strategy.zero_stage, 3);
  EXPECT_EQ(entry(plan, "generate").strategy.dp, 16);
}

TEST(Baselines, GenerationUsesTheSmallestTensorParallelThatLeavesRoomForTheCache) {
  const PlanningProblem problem = make_test_problem({.actor = "llama2-70b", .nodes = 4});
  // 138 GB of 16-bit weights: 8 devices hold 17 GB each, 4 would hold 34 GB, under half of 80 GB.
  EXPECT_EQ(entry(*deepspeed_chat_plan(problem), "generate").strategy.tp, 4);
}

TEST(Baselines, SymmetricMegatronIsAlikeForAllCalls) {
  const ExecutionPlan plan = *symmetric_megatron_plan(make_test_problem({.nodes = 4}));
  for (const CallPlan& call : plan.calls) {
    EXPECT_EQ(call.strategy.tp, 8) << call.call;
    EXPECT_EQ(call.strategy.pp, 4) << call.call;
    EXPECT_EQ(call.strategy.dp, 1) << call.call;
  }
}

TEST(Baselines, RealHeuristicTrainsActorAndCriticSideBySide) {
  const PlanningProblem problem =
      make_test_problem({.actor = "llama2-70b", .critic = "llama2-7b", .nodes = 8});
  const ExecutionPlan plan = *real_heuristic_plan(problem);
  // 69 / (69 + 6.7) of 8 nodes, rounded up, but one node is left for the critic.
  EXPECT_EQ(mesh_text(entry(plan, "update_actor").mesh), "0-55");
  EXPECT_EQ(mesh_text(entry(plan, "update_critic").mesh), "56-63");
  EXPECT_EQ(entry(plan, "generate").strategy.tp, 1);
  EXPECT_EQ(entry(plan, "generate").strategy.pp, 8);
  EXPECT_EQ(mesh_text(entry(plan, "reward").mesh), "0-31");
  EXPECT_EQ(mesh_text(entry(plan, "values").mesh), "32-63");
  EXPECT_EQ(entry(plan, "ref_logprob").strategy.tp, 4);
}

TEST(Baselines, RealHeuristicIsForPpoOnly) {
  EXPECT_THAT(real_heuristic_plan(make_test_problem({.algorithm = "grpo"})).status().message(),
              HasSubstr("has no critic"));
}

TEST(Baselines, NemoAlignerSplitsInTwoAndPipelinesWhatDoesNotFit) {
  const PlanningProblem problem = make_test_problem(
      {.actor = "llama2-70b", .critic = "llama2-70b", .nodes = 16, .prompts = 512});
  const ExecutionPlan plan = *nemo_aligner_plan(problem);
  EXPECT_FALSE(overlaps(entry(plan, "update_actor").mesh, entry(plan, "update_critic").mesh));
  EXPECT_EQ(entry(plan, "update_actor").mesh, entry(plan, "ref_logprob").mesh);
  EXPECT_EQ(entry(plan, "update_actor").strategy.tp, 8);
  EXPECT_GT(entry(plan, "update_actor").strategy.pp, 1);
  EXPECT_EQ(entry(plan, "generate").strategy.pp, 1);
}

TEST(Baselines, OpenRlhfKeepsGroupsApart) {
  const ExecutionPlan plan = *openrlhf_plan(make_test_problem({.nodes = 2}));
  const char* apart[] = {"generate", "update_actor", "update_critic", "ref_logprob", "reward"};
  for (const char* a : apart)
    for (const char* b : apart)
      if (std::string(a) != b) {
        EXPECT_FALSE(overlaps(entry(plan, a).mesh, entry(plan, b).mesh)) << a << " " << b;
      }
}

TEST(Baselines, VerlKeepsFrozenRolesInHostMemory) {
  const ExecutionPlan plan = *verl_hybrid_plan(make_test_problem());
  EXPECT_EQ(role_plan(plan, RoleId{"reference"}).weights, Residency::kHost);
  EXPECT_EQ(role_plan(plan, RoleId{"actor"}).weights, Residency::kDevice);
}

TEST(Baselines, DevicesThatDivideNoBatchAreNamed) {
  const PlanningProblem problem = make_test_problem({.devices = 7, .prompts = 64});
  EXPECT_THAT(deepspeed_chat_plan(problem).status().message(),
              HasSubstr("over 7 devices does not divide a batch of"));
}

// Prices under which a call takes work / devices, plus a cost of each participating device: small
// sets pay off when the overhead dominates.
HybridFlowPrices linear_prices(double overhead_per_device) {
  HybridFlowPrices prices;
  prices.call_seconds = [=](const CallPlan& plan) -> std::optional<double> {
    const auto devices = static_cast<double>(plan.mesh.devices.size());
    return 8 / devices + overhead_per_device * devices;
  };
  prices.fits = [](const ExecutionPlan&) { return true; };
  return prices;
}

TEST(HybridFlow, SharesDevicesWhenScalingIsPerfectAndSeparatesWhenItIsNot) {
  const PlanningProblem problem = make_test_problem();
  const auto sets_of = [&](double overhead) {
    std::set<std::string> meshes;
    const ExecutionPlan plan = *hybridflow_plan(problem, linear_prices(overhead));
    for (const CallPlan& call : plan.calls) meshes.insert(mesh_text(call.mesh));
    return meshes.size();
  };
  EXPECT_EQ(sets_of(0), 1u);
  EXPECT_GT(sets_of(1), 1u);
}

TEST(HybridFlow, FindsTheCheapestOfAllMappingsUnderItsCost) {
  const PlanningProblem problem = make_test_problem({.devices = 2});
  // Two devices: all together, or {roles} | {roles} with one device each. With overhead 5, a call
  // costs 4 + 10 = 14 on two devices and 8 + 5 = 13 on one. Together: 6 calls x 14 = 84... the
  // stages have 1, 4 and 2 calls. Apart, the best halves cost 1, 2 and 1 calls: 4 x 13 = 52.
  const ExecutionPlan plan = *hybridflow_plan(problem, linear_prices(5));
  EXPECT_NE(entry(plan, "update_actor").mesh, entry(plan, "update_critic").mesh);
  std::map<std::string, int> inferences;
  for (const char* call : {"reward", "old_logprob", "values", "ref_logprob"})
    ++inferences[mesh_text(entry(plan, call).mesh)];
  EXPECT_EQ(inferences["0"], 2);
  EXPECT_EQ(inferences["1"], 2);
}

TEST(HybridFlow, TakesTheNextMappingWhenTheBestDoesNotFit) {
  const PlanningProblem problem = make_test_problem();
  HybridFlowPrices prices = linear_prices(0);
  prices.fits = [](const ExecutionPlan& plan) {
    return entry(plan, "update_actor").mesh.devices.size() < 8;
  };
  EXPECT_LT(entry(*hybridflow_plan(problem, prices), "update_actor").mesh.devices.size(), 8u);
  prices.fits = [](const ExecutionPlan&) { return false; };
  EXPECT_EQ(hybridflow_plan(problem, prices).status().code(), Code::kInfeasible);
}

TEST(HybridFlow, PlansSixteenNodesQuickly) {
  const PlanningProblem problem = make_test_problem({.nodes = 16, .prompts = 512});
  int priced = 0;
  HybridFlowPrices prices = linear_prices(0.01);
  const auto inner = prices.call_seconds;
  prices.call_seconds = [&](const CallPlan& plan) {
    ++priced;
    return inner(plan);
  };
  EXPECT_TRUE(hybridflow_plan(problem, prices).ok());
  EXPECT_LT(priced, 60000);
}

}  // namespace
}  // namespace braid::inline foreign
