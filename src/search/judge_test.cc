// What makes judging cheap does not change what is judged.
#include "search/judge.h"

#include <gtest/gtest.h>

#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "search/test_search.h"

namespace braid::inline search {
namespace {

PlanningProblem small_problem() {
  return make_test_problem({.actor = "llama3.2-1b",
                            .critic = "llama3.2-1b",
                            .gpu = "a100-40g",
                            .devices = 4,
                            .prompts = 32,
                            .minibatches = 2});
}

// Generation in layouts to which weights move, beside updates in another.
std::vector<ExecutionPlan> moving_plans(const PlanningProblem& problem) {
  std::vector<ExecutionPlan> out;
  for (const int tp : {1, 2, 4, 2}) {
    ExecutionPlan plan = uniform_plan(problem, 2, 1, 2);
    for (CallPlan& call : plan.calls)
      if (call.call == "generate") call.strategy.tp = tp, call.strategy.pp = 1;
    for (CallPlan& call : plan.calls)
      if (call.call == "generate") call.strategy.dp = 4 / tp;
    out.push_back(std::move(plan));
  }
  return out;
}

TEST(Judges, MessagesThatPlansHaveInCommonAreThoseOfEach) {
  const PlanningProblem problem = small_problem();
  const Judge judge = simulator_judge(problem, committed_calibration());
  for (const ExecutionPlan& plan : moving_plans(problem)) {
    const auto judged = judge(plan);
    const auto alone = simulate_plan(plan, problem, committed_calibration(), {});
    ASSERT_TRUE(judged.ok() && alone.ok()) << judged.status().message();
    EXPECT_EQ(judged->step_s, alone->step_s);
    EXPECT_EQ(judged->peak_bytes, alone->peak_bytes);
    EXPECT_EQ(judged->call_s, alone->call_s);
  }
}

TEST(Judges, ARememberingOneAsksOnceForAPlan) {
  const PlanningProblem problem = small_problem();
  int asked = 0;
  const Judge judge = remembering([&](const ExecutionPlan& plan) -> Result<Verdict> {
    ++asked;
    if (call_plan(plan, "generate").strategy.tp == 4) return invalid_input("refused");
    Verdict verdict;
    verdict.step_s = static_cast<double>(asked);
    return verdict;
  });
  const Judge copy = judge;
  const std::vector<ExecutionPlan> plans = moving_plans(problem);
  EXPECT_EQ(judge(plans[1])->step_s, 1);
  EXPECT_EQ(copy(plans[3])->step_s, 1);  // the same
  EXPECT_EQ(judge(plans[0])->step_s, 2);
  EXPECT_FALSE(judge(plans[2]).ok());
  EXPECT_FALSE(copy(plans[2]).ok());
  EXPECT_EQ(asked, 3);
}

// Plans that take longer by the evaluator with nothing moved than the best does by the judge.
TEST(Judges, ABoundedSearchFindsTheSamePlanWithFewerQuestions) {
  const PlanningProblem problem = small_problem();
  const auto pricer = CallPricer::make(problem, committed_calibration());
  ASSERT_TRUE(pricer.ok());
  std::vector<Found> found;
  for (const bool bounded : {false, true}) {
    auto space = make_plan_space(problem, *pricer);
    ASSERT_TRUE(space.ok());
    SearchOptions options;
    options.units.max_units = 4;
    options.evaluator_bounds_judge = bounded;
    auto one = search_plans(*space, options, simulator_judge(problem, committed_calibration()));
    ASSERT_TRUE(one.ok()) << one.status().message();
    found.push_back(*std::move(one));
  }
  EXPECT_EQ(plan_to_yaml(found[0].plan), plan_to_yaml(found[1].plan));
  EXPECT_EQ(found[0].verdict->step_s, found[1].verdict->step_s);
  EXPECT_LT(found[1].judged.size(), found[0].judged.size());
}

}  // namespace
}  // namespace braid::inline search
