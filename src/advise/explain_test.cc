#include "advise/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "plan/test_problem.h"
#include "search/judge.h"

namespace braid::inline advise {
namespace {

// What binds each call of a plan that runs everything with tensor parallelism over all devices.
std::map<std::string, std::string> bound_by(const PlanningProblem& problem) {
  const auto pricer = CallPricer::make(problem, committed_calibration());
  const ExecutionPlan plan = uniform_plan(problem, 1, device_count(problem.cluster), 1);
  const auto space = space_of_plan(plan, problem, *pricer);
  EXPECT_TRUE(space.ok()) << space.status().message();
  const Choice choice(static_cast<size_t>(space->num_coordinates()), 0);
  const auto explained = explain(*space, choice, {}, 1, committed_calibration());
  EXPECT_TRUE(explained.ok()) << explained.status().message();
  std::map<std::string, std::string> out;
  for (const CallExplanation& call : *explained) out[call.call] = call.binds;
  return out;
}

TEST(Explain, TheScarcestRateBinds) {
  PlanningProblem problem = make_test_problem({.gpu = "a40"});
  for (Node& node : problem.cluster.nodes) node.gpu.nvlink_domain_gpus = 1;
  Node& node = problem.cluster.nodes.front();
  node.gpu.pcie_gbytes_per_s = 1e4;
  EXPECT_EQ(bound_by(problem)["update_actor"], "computation");
  node.gpu.pcie_gbytes_per_s = 2;
  EXPECT_EQ(bound_by(problem)["update_actor"], "links inside a node");
  node.gpu.hbm_gbytes_per_s = 20;
  EXPECT_EQ(bound_by(problem)["generate"], "memory bandwidth");
}

TEST(Explain, AFixedTimeIsNoRate) {
  PlanningProblem problem = make_test_problem({.gpu = "h100-80g", .prompts = 8});
  Node& node = problem.cluster.nodes.front();
  node.gpu.bf16_tflops = node.gpu.hbm_gbytes_per_s = node.gpu.nvlink_gbytes_per_s = 1e9;
  EXPECT_EQ(bound_by(problem)["generate"], "fixed times");
}

}  // namespace
}  // namespace braid::inline advise
