// Prices of calls on devices and nodes that differ.
#include <gtest/gtest.h>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "pricing/efficiency.h"
#include "sim/call_cost.h"

namespace braid::inline sim {
namespace {

PlanningProblem problem_on(const char* cluster) {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo"});
  problem.cluster = *parse_cluster(cluster, "c.yaml");
  return problem;
}

CallCost cost_of(const PlanningProblem& problem, const char* name, int dp, int tp) {
  const auto program = compile(uniform_plan(problem, dp, tp, 1), problem);
  BRAID_CHECK(program.ok(), program.status().message());
  for (size_t i = 0; i < problem.graph.calls.size(); ++i)
    if (problem.graph.calls[i].name == name)
      return *CallCost::make(*program, CallId{static_cast<int32_t>(i)}, problem,
                             committed_calibration());
  BRAID_CHECK(false, "no such call");
}

TEST(MixedMesh, TheSlowestNetworkSetsThePaceOnWhicheverNodeItIs) {
  const auto reduce_s = [](const char* cluster) {
    return cost_of(problem_on(cluster), "update_actor", 16, 1).exposed_reduce_s(0, 0);
  };
  const double first = reduce_s(
                   "nodes: [{gpu: h100-80g, nic_gbps_per_gpu: 10}, "
                   "{gpu: h100-80g, nic_gbps_per_gpu: 400}]"),
               second = reduce_s(
                   "nodes: [{gpu: h100-80g, nic_gbps_per_gpu: 400}, "
                   "{gpu: h100-80g, nic_gbps_per_gpu: 10}]"),
               fast = reduce_s("{gpu: h100-80g, nodes: 2, nic_gbps_per_gpu: 400}");
  EXPECT_DOUBLE_EQ(first, second);
  EXPECT_GT(second, 10 * fast);
}

// A100s compute faster than H20s and read their memory slower.
TEST(MixedMesh, EachPriceIsThatOfTheKindThatTakesLonger) {
  const char* const mixed =
      "nodes: [{gpu: h20, gpus_per_node: 2}, {gpu: a100-80g, gpus_per_node: 2}]";
  const char* const clusters[] = {"{gpu: h20, nodes: 2, gpus_per_node: 2}",
                                  "{gpu: a100-80g, nodes: 2, gpus_per_node: 2}", mixed};
  double decode_s[3], forward_s[3];
  for (int i = 0; i < 3; ++i) {
    const PlanningProblem problem = problem_on(clusters[i]);
    decode_s[i] = cost_of(problem, "generate", 4, 1).rounds_s(RoundGroup{1, 8, 8.0 * 500, 0});
    const CallCost train = cost_of(problem, "update_actor", 4, 1);
    forward_s[i] =
        train.pass_prices(train.micro_batch({{512}, {512}, {512}, {512}})).dense_forward_s;
  }
  EXPECT_GT(decode_s[1], 1.2 * decode_s[0]);
  EXPECT_GT(forward_s[0], 1.2 * forward_s[1]);
  EXPECT_DOUBLE_EQ(decode_s[2], decode_s[1]);
  EXPECT_DOUBLE_EQ(forward_s[2], forward_s[0]);
}

// A pair of cards has a bridge, and two pairs do not.
TEST(MixedMesh, TensorParallelCardsBeyondABridgeExchangeOverTheHostLink) {
  const PlanningProblem problem = problem_on("{gpu: a100-pcie, nodes: 1, gpus_per_node: 4}");
  PlanningProblem whole = problem;
  whole.cluster.nodes[0].gpu.nvlink_domain_gpus = 8;
  const auto forward_s = [](const PlanningProblem& of, int tp) {
    const CallCost cost = cost_of(of, "ref_logprob", 4 / tp, tp);
    return cost.forward_s(cost.micro_batch({{512}, {512}, {512}, {512}}), 0);
  };
  EXPECT_DOUBLE_EQ(forward_s(problem, 2), forward_s(whole, 2));
  EXPECT_GT(forward_s(problem, 4), 1.5 * forward_s(whole, 4));
}

}  // namespace
}  // namespace braid::inline sim
