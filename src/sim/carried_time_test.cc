// Generations that leave samples for the next step, priced.
#include "sim/carried_time.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/test_problem.h"
#include "sim/batching.h"

namespace braid::inline sim {
namespace {

// GRPO on two devices, with responses of a long tail.
PlanningProblem long_tailed(double sigma, int64_t in_flight) {
  TestProblem test;
  test.algorithm = "grpo";
  test.devices = 2;
  test.prompts = 16, test.samples = 4;
  PlanningProblem problem = make_test_problem(test);
  problem.graph = *carried_over(problem.graph, 2);
  problem.workload.prompts_in_flight = in_flight;
  LengthDistribution& response = problem.workload.response;
  if (sigma > 0) response.kind = LengthDistribution::Kind::kLognormal, response.longest = 2000;
  response.mean = 200, response.sigma = sigma;
  return problem;
}

CarriedTime carried(const PlanningProblem& problem, int replicas = 1) {
  const auto program = compile(uniform_plan(problem, replicas, 2 / replicas, 1), problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  const auto out = carried_time(*program, problem, committed_calibration(), {});
  EXPECT_TRUE(out.ok()) << out.status().message();
  return *out;
}

TEST(CarriedTime, GainsByLongResponsesAlone) {
  for (const int replicas : {1, 2}) {
    const CarriedTime tail = carried(long_tailed(1.2, 24), replicas),
                      more = carried(long_tailed(1.2, 32), replicas);
    EXPECT_LT(tail.carrying_s, 0.9 * tail.waiting_s);
    EXPECT_LT(more.carrying_s, 0.9 * more.waiting_s);
    EXPECT_GT(tail.carried_tokens, 0);
    EXPECT_EQ(tail.waiting_s, more.waiting_s);
    const CarriedTime equal = carried(long_tailed(0, 24), replicas);
    EXPECT_GT(equal.carrying_s, 0.9 * equal.waiting_s);
  }
}

// With none beside those that a step takes it is the step that waits for all.
TEST(CarriedTime, OfNoFurtherPromptsIsThatOfWaiting) {
  const CarriedTime same = carried(long_tailed(1.2, 16));
  EXPECT_NEAR(same.carrying_s, same.waiting_s, 1e-9 * same.waiting_s);
  EXPECT_EQ(same.carried_tokens, 0);
}

// Rounds end with the request that was waited for, and what goes on draws what is left.
TEST(CarriedBatches, GoOnWhereTheyWere) {
  const std::vector<BatchRequest> requests = {{8, 5, 0}, {8, 3, 1}, {8, 20, 2}};
  const auto finished = [](const std::vector<BatchRequest>& now) {
    return std::count_if(now.begin(), now.end(),
                         [](const BatchRequest& r) { return r.produced == r.response; });
  };
  int64_t rounds = 0;
  const auto count = [&](const BatchRound& round) { rounds += round.rounds; };
  const std::vector<BatchRequest> left = run_batches_until_enough(
      requests, {}, [&](const auto& now) { return finished(now) >= 2; }, count);
  EXPECT_EQ(rounds, 5);
  EXPECT_EQ(left[2].produced, 5);
  EXPECT_EQ(left[2].cached, 0);
  rounds = 0;
  EXPECT_EQ(run_batches({left[2]}, {}, count), 15);
}

}  // namespace
}  // namespace braid::inline sim
