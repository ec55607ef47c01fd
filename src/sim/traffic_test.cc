#include "sim/traffic.h"

#include <gtest/gtest.h>

#include "plan/test_problem.h"

namespace braid::inline sim {
namespace {

double inside(const PlanningProblem& problem, int dp, int tp, int pp) {
  const auto program = compile(uniform_plan(problem, dp, tp, pp), problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? bytes_inside_calls(*program, problem, draw_lengths(problem.workload, 0))
                      : 0;
}

TEST(Traffic, AMemberOfACollectiveSendsWhatTheOthersLack) {
  EXPECT_EQ(sent_in_collective(OpKind::kAllReduce, 100, 4), 150);
  EXPECT_EQ(sent_in_collective(OpKind::kAllGather, 100, 4), 75);
  EXPECT_EQ(sent_in_collective(OpKind::kReduceScatter, 100, 4), 75);
  EXPECT_EQ(sent_in_collective(OpKind::kAllReduce, 100, 1), 0);
}

// Replicas meet once in an update, with their gradients alone; what is cut by tensor parallelism is
// summed for every token of every call.
TEST(Traffic, CountsGradientsByUpdatesAndActivationsByTokens) {
  PlanningProblem problem = make_test_problem();
  problem.workload.minibatches = 1;
  const double replicas = inside(problem, 8, 1, 1), cut = inside(problem, 1, 8, 1);
  const double stages = inside(problem, 1, 1, 8);
  EXPECT_GT(replicas, 0);
  problem.workload.minibatches = 2;
  EXPECT_NEAR(inside(problem, 8, 1, 1) / replicas, 2, 0.01);
  EXPECT_NEAR(inside(problem, 1, 8, 1) / cut, 1, 0.01);
  EXPECT_NEAR(inside(problem, 1, 1, 8) / stages, 1, 0.01);
  problem.workload.minibatches = 1;
  problem.workload.response.mean *= 2, problem.workload.prompt.mean *= 2;
  EXPECT_NEAR(inside(problem, 8, 1, 1) / replicas, 1, 0.01);
  EXPECT_NEAR(inside(problem, 1, 8, 1) / cut, 2, 0.02);
  EXPECT_NEAR(inside(problem, 1, 1, 8) / stages, 2, 0.02);
}

}  // namespace
}  // namespace braid::inline sim
