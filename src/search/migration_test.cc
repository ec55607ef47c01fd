// When a generation is handed over: the number that `auto` stands for.
#include "search/migration.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "plan/plan_text.h"
#include "plan/test_problem.h"

namespace braid::inline search {
namespace {

PlanningProblem tailed_problem(double sigma) {
  PlanningProblem problem = make_test_problem(
      {.prompts = 96, .minibatches = 2, .prompt_tokens = 128, .response_tokens = 256});
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = sigma;
  problem.workload.response.longest = 1024;
  return problem;
}

ExecutionPlan plan_of(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  for (CallPlan& call : plan.calls)
    if (call.call != "generate") call.strategy.micro_tokens = 4096;
  plan.fusion.migrate_below_samples = kAutoMigration;
  return plan;
}

// Within a hundredth of the best of all numbers.
TEST(Migration, AutoIsAsGoodAsEveryNumber) {
  for (const double sigma : {0.6, 1.2}) {
    const PlanningProblem problem = tailed_problem(sigma);
    const ExecutionPlan plan = plan_of(problem);
    const auto chosen = with_chosen_migration(plan, problem, committed_calibration());
    ASSERT_TRUE(chosen.ok()) << chosen.status().message();
    const auto step_of = [&](int64_t below) {
      ExecutionPlan handed = plan;
      handed.fusion.migrate_below_samples = below;
      return simulate_plan(handed, problem, committed_calibration(), {})->step_s;
    };
    double best = step_of(0);
    for (int64_t below = 1; below < 96; ++below) best = std::min(best, step_of(below));
    EXPECT_LE(step_of(chosen->fusion.migrate_below_samples), 1.01 * best) << sigma;
  }
}

TEST(Migration, OtherPlansStayAsTheyAre) {
  const PlanningProblem problem = tailed_problem(1);
  ExecutionPlan plan = plan_of(problem);
  EXPECT_EQ(parse_plan(plan_to_yaml(plan), "plan")->fusion.migrate_below_samples, kAutoMigration);
  for (const int64_t below : {0, 7}) {
    plan.fusion.migrate_below_samples = below;
    EXPECT_EQ(*with_chosen_migration(plan, problem, committed_calibration()), plan);
  }
}

}  // namespace
}  // namespace braid::inline search
