#include "sim/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/test_problem.h"

namespace braid::inline sim {
namespace {

using testing::HasSubstr;

PlanningProblem grpo_problem() {
  return make_test_problem(
      {.algorithm = "grpo", .nodes = 2, .prompts = 32, .samples = 4, .response_tokens = 512});
}

// Generation on the second node, everything else on the first.
ExecutionPlan split_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  for (CallPlan& call : plan.calls) {
    const bool rollout = call.call == "generate";
    call.mesh = *contiguous_mesh(problem.cluster, rollout ? 8 : 0, 8);
    if (call.call == "update_actor") call.strategy.zero_stage = 1, call.strategy.micro_batches = 4;
  }
  return plan;
}

CallSummary call_of(const Trace& trace, const std::string& name) {
  for (const CallSummary& call : trace.calls)
    if (trace.call_names[call.call.value] == name) return call;
  ADD_FAILURE() << name;
  return {};
}

double call_s(const Trace& trace, const std::string& name) {
  return call_of(trace, name).seconds();
}

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> out;
  for (const Call& call : graph.calls) out.push_back(call.name);
  return out;
}

TEST(Overlap, RolloutsComeStepsEarlier) {
  const PlanningProblem problem = grpo_problem();
  const PlanningProblem ahead = overlapped_problem(problem, 3, 1);
  EXPECT_TRUE(verify(ahead.graph).ok());
  const auto order = names(ahead.graph);
  EXPECT_EQ(order.size(), 3 * problem.graph.calls.size());
  const auto at = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  EXPECT_LT(at("generate@1"), at("update_actor@0"));
  EXPECT_GT(at("generate@2"), at("update_actor@0"));
  EXPECT_THAT(names(overlapped_problem(problem, 2, 0).graph),
              testing::UnorderedElementsAreArray(names(unroll(problem.graph, 2))));
}

TEST(Overlap, StepsInTurnTakeAsLongAsOneStep) {
  const PlanningProblem problem = grpo_problem();
  const ExecutionPlan plan = split_plan(problem);
  const auto steps = simulate_steps(plan, problem, committed_calibration(), {});
  ASSERT_TRUE(steps.ok()) << steps.status().message();
  const Trace one = *simulate(*compile(plan, problem), problem, committed_calibration(), {});
  // Calls stand in another order there, and so does what they send.
  EXPECT_NEAR(steps->first_s, one.step_s, 1e-4 * one.step_s);
  EXPECT_NEAR(steps->step_s, one.step_s, 0.01 * one.step_s);
}

TEST(Overlap, OneStepOffTakesTheLongerSideOnDisjointDevices) {
  const PlanningProblem problem = grpo_problem();
  ExecutionPlan plan = split_plan(problem);
  const auto in_turn = simulate_steps(plan, problem, committed_calibration(), {});
  plan.staleness = 1;
  const auto ahead = simulate_steps(plan, problem, committed_calibration(), {});
  ASSERT_TRUE(in_turn.ok() && ahead.ok());
  const double generate = call_s(ahead->trace, "generate@3");
  const double learn = call_s(ahead->trace, "old_logprob@3") +
                       call_s(ahead->trace, "ref_logprob@3") +
                       call_s(ahead->trace, "update_actor@3");
  EXPECT_GE(ahead->step_s, std::max(generate, learn) - 1e-9);
  EXPECT_LT(ahead->step_s, 0.9 * in_turn->step_s);
  EXPECT_LE(ahead->step_s, in_turn->step_s - std::min(generate, learn) + 0.1);
}

TEST(Overlap, StepsLeaveOutTheirOwnIdleCalls) {
  const PlanningProblem problem = grpo_problem();
  OverlapOptions options;
  options.steps = 3;
  options.idle_calls = {{"update_actor"}, {"update_actor"}};
  const auto steps = simulate_steps(split_plan(problem), problem, committed_calibration(), options);
  ASSERT_TRUE(steps.ok()) << steps.status().message();
  EXPECT_EQ(call_of(steps->trace, "update_actor@0").busy_s, 0);
  EXPECT_EQ(call_of(steps->trace, "update_actor@1").busy_s, 0);
  EXPECT_GT(call_of(steps->trace, "update_actor@2").busy_s, 0);
}

// State in host memory comes and goes in every step as it does in one.
TEST(Overlap, HostStateIsLoadedInEveryStep) {
  const PlanningProblem problem = grpo_problem();
  ExecutionPlan plan = split_plan(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost},
                {RoleId{"reference"}, Residency::kHost}};
  OverlapOptions options;
  options.steps = 4, options.simulation.events = true;
  const auto moves = [](const Trace& trace, EventKind kind) {
    return std::count_if(trace.events.begin(), trace.events.end(),
                         [&](const TraceEvent& event) { return event.kind == kind; });
  };
  const Trace one =
      *simulate(*compile(plan, problem), problem, committed_calibration(), options.simulation);
  // On each of the eight devices: weights of both roles and the optimizer in, what training
  // changed back.
  EXPECT_EQ(moves(one, EventKind::kLoad), 3 * 8);
  EXPECT_EQ(moves(one, EventKind::kOffload), 2 * 8);
  const auto several = simulate_steps(plan, problem, committed_calibration(), options);
  ASSERT_TRUE(several.ok()) << several.status().message();
  EXPECT_EQ(moves(several->trace, EventKind::kLoad), 4 * moves(one, EventKind::kLoad));
  EXPECT_EQ(moves(several->trace, EventKind::kOffload), 4 * moves(one, EventKind::kOffload));
  EXPECT_LE(several->step_s, one.step_s);  // the last state of a step leaves beside the next one
}

TEST(Overlap, ErrorsNameTheRule) {
  const PlanningProblem problem = grpo_problem();
  ExecutionPlan plan = split_plan(problem);
  plan.staleness = 4;
  const auto few = simulate_steps(plan, problem, committed_calibration(), {});
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.status().message(), HasSubstr("at least 10 simulated steps"));
  ExecutionPlan shared = uniform_plan(problem, 16, 1, 1);
  shared.staleness = 1;
  const auto same = simulate_steps(shared, problem, committed_calibration(), {});
  ASSERT_FALSE(same.ok());
  EXPECT_THAT(same.status().message(), HasSubstr("share devices"));
  const PlanningProblem sft = make_test_problem({.algorithm = "sft"});
  ExecutionPlan train = uniform_plan(sft, 8, 1, 1);
  train.staleness = 1;
  const auto none = simulate_steps(train, sft, committed_calibration(), {});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.status().message(), HasSubstr("does not generate"));
}

}  // namespace
}  // namespace braid::inline sim
