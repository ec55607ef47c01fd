#include "sim/work_cuts.h"

#include <gmock/gmock.h>

#include <numeric>

#include "base/rng.h"
#include "plan/test_problem.h"
#include "pricing/efficiency.h"

namespace braid::inline sim {
namespace {

// Micro-batches of training calls and of the partition that the runtime is given are the same.
class WorkCutsOfPartitions : public testing::TestWithParam<bool> {};

TEST_P(WorkCutsOfPartitions, AreThePartitionOfTheCall) {
  PlanningProblem problem = make_test_problem({.prompts = 48});
  if (GetParam()) {
    problem.workload.prompts = 13, problem.workload.samples_per_prompt = 6;
    problem.workload.share_prompts = true;
  }
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 256, 1.0, 1024, {}};
  problem.workload.minibatches = 3;
  const SampleLengths lengths = draw_lengths(problem.workload, 0);
  const Call& call = *find_call(problem.graph, "update_actor");
  const auto device =
      make_device(problem.cluster.nodes[0].gpu, Precision::kBf16, "", committed_calibration());
  WorkCuts cuts(problem, lengths);
  for (const int64_t micro_tokens : {0, 900})
    for (const bool in_order : {false, true}) {
      CallPlan plan{call.name, whole_cluster(problem.cluster), {}};
      plan.strategy.dp = static_cast<int>(plan.mesh.devices.size());
      plan.strategy.micro_batches = 2, plan.strategy.micro_tokens = micro_tokens;
      plan.strategy.in_order = in_order;
      const CallCost cost = CallCost::make(call, plan, problem, {*device});
      const Partition partition = partition_samples(
          partition_input(problem, lengths, call), plan.strategy, partition_options(problem, call));
      ASSERT_EQ(partition.minibatches.size(), 3U);
      for (size_t i = 0; i < 3; ++i) {
        const auto& batches = cuts.micro_batches(call, cost, static_cast<int64_t>(i));
        for (size_t rank = 0; rank < batches.size(); ++rank) {
          std::vector<int64_t> tokens;
          for (const MicroBatch& batch : batches[rank])
            tokens.push_back(static_cast<int64_t>(batch.tokens));
          EXPECT_EQ(tokens, partition.minibatches[i].tokens[rank]);
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Prompts, WorkCutsOfPartitions, testing::Bool());

// By how much a step is shorter whose samples share their prompts: most of long ones.
TEST(WorkCuts, SharedPromptsAreComputedOnce) {
  PlanningProblem problem = make_test_problem({.prompts = 8});
  problem.workload.samples_per_prompt = 8, problem.workload.minibatches = 1;
  problem.workload.prompt = {LengthDistribution::Kind::kFixed, 896, 0, 0, {}};
  problem.workload.response = {LengthDistribution::Kind::kFixed, 64, 0, 0, {}};
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  const auto seconds = [&](bool share, const char* call) {
    problem.workload.share_prompts = share;
    const auto trace =
        simulate(*compile(plan, problem), problem, committed_calibration(), SimOptions());
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    for (const CallSummary& summary : trace->calls)
      if (trace->call_names[summary.call.value] == call) return summary.seconds();
    ADD_FAILURE() << call;
    return 0.0;
  };
  EXPECT_EQ(seconds(true, "generate"), seconds(false, "generate"));
  for (const char* call : {"ref_logprob", "update_actor"})
    EXPECT_LT(seconds(true, call), 0.5 * seconds(false, call)) << call;
}

// What balance is worth in a step, and that it changes nothing where all lengths are equal.
TEST(WorkCuts, BalancedUpdatesTakeLessTimeWhereLengthsDiffer) {
  PlanningProblem problem = make_test_problem();
  const auto step_s = [&](bool in_order) {
    ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
    for (CallPlan& entry : plan.calls)
      entry.strategy.in_order = in_order && entry.call != "generate";
    const auto trace =
        simulate(*compile(plan, problem), problem, committed_calibration(), SimOptions());
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace->step_s;
  };
  problem.workload.response = {LengthDistribution::Kind::kFixed, 256, 0, 0, {}};
  const double balanced_s = step_s(false);
  EXPECT_NEAR(balanced_s, step_s(true), 1e-4 * balanced_s);  // other samples move between ranks
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 256, 1.0, 1024, {}};
  EXPECT_LT(step_s(false), 0.99 * step_s(true));
}

}  // namespace
}  // namespace braid::inline sim
