// What a rank comes to after what stands before it in its list, by the evaluator as by the
// simulator.
#include <gtest/gtest.h>

#include "plan/make_problem.h"
#include "plan/test_problem.h"
#include "search/judge.h"
#include "search/test_search.h"

namespace braid::inline search {
namespace {

// PPO whose reward model scores in a call of its own, before all others that read the samples.
PlanningProblem problem_with_scores() {
  PlanningProblem problem =
      make_test_problem({.actor = "llama3.2-1b", .critic = "llama3.2-1b", .prompts = 64});
  problem.graph = with_score_calls(*make_graph(default_options("ppo")), 1);
  problem.models["reward"].spec = {*find_model("llama3.2-1b")};
  return problem;
}

struct Place {
  const char* call;
  int first, devices;
  int dp, pp;
};

// All calls on all devices, but for these.
ExecutionPlan placed(const PlanningProblem& problem, const std::vector<Place>& places) {
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  for (CallPlan& entry : plan.calls) {
    if (entry.call == "generate") entry.strategy.dp = 1, entry.strategy.tp = 8;
    for (const Place& place : places) {
      if (entry.call != place.call) continue;
      entry.mesh = *contiguous_mesh(problem.cluster, place.first, place.devices);
      entry.strategy.dp = place.dp, entry.strategy.pp = place.pp;
      if (place.pp > 1) entry.strategy.micro_batches = 4;
    }
  }
  return plan;
}

void expect_alike(const PlanningProblem& problem, const ExecutionPlan& plan) {
  const CallPricer pricer = *CallPricer::make(problem, committed_calibration());
  const auto mine = evaluator_judge(problem, pricer)(plan);
  const auto its = simulator_judge(problem, committed_calibration())(plan);
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  ASSERT_TRUE(its.ok()) << its.status().message();
  EXPECT_NEAR(mine->step_s / its->step_s, 1, 0.003);
}

// The first device of the generation asks the list of rewards, and so comes late to `values`.
TEST(Evaluator, WhoAsksRewardsWaitsForScores) {
  const PlanningProblem problem = problem_with_scores();
  expect_alike(problem, placed(problem, {{"score_1", 4, 4, 4, 1},
                                         {"old_logprob", 0, 4, 4, 1},
                                         {"values", 0, 4, 4, 1},
                                         {"ref_logprob", 0, 4, 4, 1},
                                         {"update_critic", 0, 4, 4, 1}}));
}

// Who sends weights alone goes on with what it computes.
TEST(Evaluator, WeightsDoNotWaitForWhatTheirSendersCompute) {
  const PlanningProblem problem = problem_with_scores();
  expect_alike(problem, placed(problem, {{"score_1", 0, 4, 4, 1},
                                         {"old_logprob", 0, 4, 4, 1},
                                         {"values", 6, 2, 2, 1},
                                         {"ref_logprob", 0, 4, 4, 1},
                                         {"update_critic", 0, 8, 4, 2}}));
}

}  // namespace
}  // namespace braid::inline search
