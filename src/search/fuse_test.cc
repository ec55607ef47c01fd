// Fused training as a proposal beside a plan.
#include "search/fuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "search/simulate.h"

namespace braid::inline search {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kWholeMemory = 0;

// Two updates in four stages each, one micro-batch a stage: half of their time is bubbles.
struct InPipelines {
  InPipelines() : plan(uniform_plan(problem, 1, 4, 1)) {
    for (CallPlan& call : plan.calls)
      if (call.call == "update_actor" || call.call == "update_critic") {
        call.strategy.tp = 1, call.strategy.pp = 4;
        call.strategy.micro_batches = 4;
      }
  }
  PlanningProblem problem = make_test_problem({.actor = "llama3.2-1b",
                                               .critic = "llama3.2-1b",
                                               .gpu = "h100-80g",
                                               .devices = 4,
                                               .prompts = 32});
  ExecutionPlan plan;
  Judge judge = simulator_judge(problem, committed_calibration());

  double step_s() const { return judge(plan)->step_s; }
  FusionProposal propose(const FusionOptions& options = {}) const {
    return **propose_fusion(problem, plan, step_s(), judge, options);
  }
};

TEST(PlanFuse, ProposesWhatTheJudgeConfirms) {
  const InPipelines f;
  const FusionProposal proposal = f.propose();
  ASSERT_TRUE(proposal.wins());
  const ExecutionPlan& fused = proposal.fused->plan;
  EXPECT_TRUE(fused.fusion.train_schedules);
  EXPECT_TRUE(validate(fused, f.problem).ok());
  const Verdict again = *f.judge(fused);
  EXPECT_EQ(again.step_s, proposal.fused->verdict.step_s);
  EXPECT_LT(again.step_s, f.step_s());
  const std::string text = fusion_text(proposal, f.plan);
  EXPECT_THAT(text, StartsWith("fused training: with the passes"));
  EXPECT_THAT(text, HasSubstr("fusion: train_schedules"));
  const OrderedJson json = fusion_json(proposal);
  EXPECT_EQ(json["wins"], true);
  EXPECT_EQ(*plan_from_json(json["plan"]), fused);
}

// Nothing but the order changes where the found plan is the only one allowed.
TEST(PlanFuse, FusesThePlanAsItIs) {
  const InPipelines f;
  FusionOptions options;
  options.allowed = [&](const CallPlan& call) {
    for (const CallPlan& own : f.plan.calls)
      if (own.call == call.call) return own.strategy == call.strategy;
    return false;
  };
  const FusionProposal proposal = f.propose(options);
  ASSERT_TRUE(proposal.wins());
  for (size_t i = 0; i < f.plan.calls.size(); ++i)
    EXPECT_EQ(proposal.fused->plan.calls[i].strategy, f.plan.calls[i].strategy);
}

TEST(PlanFuse, LeavesTheMargin) {
  const InPipelines f;
  const FusionProposal whole = f.propose({kWholeMemory, {}});
  ASSERT_TRUE(whole.fused);
  const Verdict& verdict = whole.fused->verdict;
  const double used = verdict.peak_bytes / verdict.capacity_bytes;
  constexpr double kLess = 0.999;
  const FusionProposal some = f.propose({1 - kLess * used, {}});
  ASSERT_TRUE(some.fused);
  EXPECT_LE(some.fused->verdict.peak_bytes, kLess * used * some.fused->verdict.capacity_bytes);
  const FusionProposal none = f.propose({0.999, {}});
  EXPECT_FALSE(none.fused);
  EXPECT_THAT(fusion_text(none, f.plan), HasSubstr("fits"));
  EXPECT_TRUE(fusion_json(none)["step_s_with"].is_null());
}

TEST(PlanFuse, SaysByHowMuchItLoses) {
  const InPipelines f;
  const double much_faster_s = 0.1 * f.step_s();
  const FusionProposal proposal =
      **propose_fusion(f.problem, f.plan, much_faster_s, f.judge, FusionOptions{});
  EXPECT_FALSE(proposal.wins());
  EXPECT_THAT(fusion_text(proposal, f.plan), HasSubstr("not proposed"));
  EXPECT_FALSE(fusion_json(proposal).contains("plan"));
}

TEST(PlanFuse, OneTrainingCallHasNothingToFuse) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo"});
  const Judge judge = [](const ExecutionPlan&) -> Result<Verdict> {
    return invalid_input("nobody asks");
  };
  const auto proposal =
      propose_fusion(problem, uniform_plan(problem, 8, 1, 1), 1, judge, FusionOptions{});
  ASSERT_TRUE(proposal.ok());
  EXPECT_FALSE(proposal->has_value());
}

TEST(PlanFuse, PassesOnWhatEndsAllJudging) {
  const InPipelines f;
  const Judge broken = [](const ExecutionPlan&) -> Result<Verdict> {
    return Status{Code::kStopped, "stopped by hand"};
  };
  const auto proposal = propose_fusion(f.problem, f.plan, 1, broken, FusionOptions{});
  EXPECT_THAT(proposal.status().message(), HasSubstr("stopped by hand"));
}

}  // namespace
}  // namespace braid::inline search
