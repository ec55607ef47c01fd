#include "plan/executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataflow/graph.h"

namespace braid::inline plan {
namespace {

using testing::HasSubstr;

// Every call on two devices as `dp: 2`.
ExecutionPlan plan_of(const Graph& graph) {
  ExecutionPlan plan;
  plan.graph = graph.name;
  plan.devices = 2;
  for (const Call& call : graph.calls) {
    if (!uses_model(call)) continue;
    CallPlan entry;
    entry.call = call.name;
    entry.mesh.devices = {DeviceId{0}, DeviceId{1}};
    entry.strategy.dp = 2;
    plan.calls.push_back(entry);
  }
  return plan;
}

TEST(Executable, SharedOptimizerStatesAreAndCutWeightsAreNot) {
  const Graph graph = ppo_graph(AlgorithmOptions());
  ExecutionPlan plan = plan_of(graph);
  EXPECT_EQ(check_executable(plan, graph).message(), "");
  const auto change = [&](const std::string& name, auto field, auto value) {
    ExecutionPlan other = plan;
    for (CallPlan& entry : other.calls)
      if (entry.call == name) entry.strategy.*field = value;
    return check_executable(other, graph).message();
  };
  for (const int stage : {1, 2, 3})
    EXPECT_EQ(change("update_actor", &Strategy::zero_stage, stage), "");
  EXPECT_EQ(change("ref_logprob", &Strategy::zero_stage, 3), "");
  EXPECT_EQ(change("generate", &Strategy::pp, 2), "");
  EXPECT_EQ(change("old_logprob", &Strategy::pp, 2), "");
  EXPECT_THAT(change("update_actor", &Strategy::cp, 2), HasSubstr("cp 2"));
  EXPECT_THAT(change("update_actor", &Strategy::precision, std::optional(Precision::kBf16)),
              HasSubstr("call update_actor: precision bf16"));
  for (CallPlan& entry : plan.calls)
    if (entry.call == "update_critic") entry.strategy.interleave = 2;
  for (const int stage : {0, 2, 3})
    EXPECT_EQ(change("update_critic", &Strategy::zero_stage, stage), "");
  EXPECT_EQ(change("update_actor", &Strategy::schedule, PipelineOrder::kAllForwardFirst), "");
  EXPECT_EQ(change("update_actor", &Strategy::recompute, Recompute::kSelective), "");
}

TEST(Executable, DevicesInAnyOrderAre) {
  const Graph graph = ppo_graph(AlgorithmOptions());
  ExecutionPlan plan = plan_of(graph);
  plan.calls[1].mesh.devices = {DeviceId{1}, DeviceId{0}};
  EXPECT_EQ(check_executable(plan, graph).message(), "");
}

TEST(Executable, StatesOnTheHostFusedSchedulesAndStalenessAreButNotTheLastTwoTogether) {
  const Graph graph = ppo_graph(AlgorithmOptions());
  ExecutionPlan plan = plan_of(graph);
  plan.roles.push_back({RoleId{"reference"}, Residency::kHost});
  EXPECT_EQ(check_executable(plan, graph).message(), "");
  plan.roles[0].prefetch = true;
  EXPECT_EQ(check_executable(plan, graph).message(), "");
  plan.roles.clear();
  plan.fusion.train_schedules = true;
  EXPECT_EQ(check_executable(plan, graph).message(), "");
  plan.staleness = 2;
  EXPECT_THAT(check_executable(plan, graph).message(),
              HasSubstr("staleness: 2 with fusion.train_schedules"));
  plan.fusion.train_schedules = false;
  EXPECT_EQ(check_executable(plan, graph).message(), "");
}

}  // namespace
}  // namespace braid::inline plan
