#include "search/ahead.h"

#include <gmock/gmock.h>

#include "plan/placement.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::inline search {
namespace {

using testing::HasSubstr;

struct AheadCase {
  PlanningProblem problem;
  CallPricer pricer;
  explicit AheadCase(const TestProblem& test)
      : problem(make_test_problem(test)),
        pricer(*CallPricer::make(problem, committed_calibration())) {}
  std::optional<AheadProposal> propose(double step_s, int64_t staleness = 1,
                                       const PlanConstraints& kept = {}) {
    AheadOptions options;
    options.staleness = staleness;
    options.space = *keeping(kept, options.space);
    return *propose_ahead(problem, pricer, committed_calibration(), step_s, options);
  }
};

TEST(Ahead, GenerationHasDevicesOfItsOwnAndTheJudgesTime) {
  AheadCase grpo({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 4, .prompts = 64});
  const auto proposal = grpo.propose(1e9);
  ASSERT_TRUE(proposal && proposal->ahead);
  EXPECT_TRUE(proposal->wins());
  const ExecutionPlan& plan = proposal->ahead->plan;
  EXPECT_EQ(plan.staleness, 1);
  const auto verdict = simulate_plan(plan, grpo.problem, committed_calibration(), {});
  ASSERT_TRUE(verdict.ok()) << verdict.status().message();
  EXPECT_EQ(verdict->step_s, proposal->ahead->verdict.step_s);
  ExecutionPlan synchronous = plan;
  synchronous.staleness = 0;
  EXPECT_LT(verdict->step_s,
            simulate_plan(synchronous, grpo.problem, committed_calibration(), {})->step_s);
  EXPECT_THAT(ahead_text(*proposal), HasSubstr("staleness: with rollouts made 1 step ahead"));
}

TEST(Ahead, StaysSynchronousWhereItDoesNotPay) {
  AheadCase grpo({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 4, .prompts = 64});
  const auto proposal = grpo.propose(1e-6, 2);
  ASSERT_TRUE(proposal && proposal->ahead);
  EXPECT_FALSE(proposal->wins());
  EXPECT_THAT(ahead_text(*proposal), HasSubstr("stay synchronous: with rollouts made 2 steps"));
  EXPECT_EQ(ahead_json(*proposal)["pays"], false);
  AheadCase alone({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 1, .prompts = 64});
  const auto nowhere = alone.propose(1);  // no device is left for the other calls
  ASSERT_TRUE(nowhere);
  EXPECT_FALSE(nowhere->ahead);
  AheadCase sft({.algorithm = "sft", .actor = "qwen2.5-0.5b", .devices = 2});
  EXPECT_FALSE(sft.propose(1).has_value());
}

// Once a plan is found and the time has passed, no other division of the devices is searched.
TEST(Ahead, EndsWhereTheTimeHasPassed) {
  AheadCase grpo({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 4, .prompts = 64});
  AheadOptions options;
  options.search.judged = 4;
  int asked = 0;
  options.judge = [&, judge = simulator_judge(grpo.problem, committed_calibration())](
                      const ExecutionPlan& plan) { return ++asked, judge(plan); };
  const auto judged = [&] {
    asked = 0;
    const auto found =
        propose_ahead(grpo.problem, grpo.pricer, committed_calibration(), 1, options);
    EXPECT_TRUE(found.ok() && *found && (*found)->ahead) << found.status().message();
    return asked;
  };
  const int all = judged();
  options.search.late = [](double) { return true; };
  EXPECT_LT(judged(), all);
}

// What the placement says stays, and the rest is searched: the reference model scores beside the
// generation here, with which training shares no device.
TEST(Ahead, KeepsAPlacementThatSeparatesGenerationFromTraining) {
  AheadCase grpo({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 4, .prompts = 64});
  for (const std::string name : {"disaggregated", "standalone"}) {
    const PlanConstraints kept{{}, *placement_meshes(name, grpo.problem), {}};
    const auto proposal = grpo.propose(1e9, 1, kept);
    ASSERT_TRUE(proposal && proposal->ahead.has_value() == (name == "disaggregated")) << name;
    if (!proposal->ahead) {  // one part for each role: generation is with the training
      EXPECT_EQ(ahead_text(*proposal),
                "stay synchronous: no plan whose rollouts are made 1 step ahead fits and keeps the "
                "placement\n");
      continue;
    }
    EXPECT_TRUE(satisfies(proposal->ahead->plan, kept).ok());
    EXPECT_EQ(proposal->ahead->plan.staleness, 1);
  }
}

TEST(Ahead, DevicesInTheMiddleMayGenerate) {
  AheadCase grpo({.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 4, .prompts = 64});
  const DeviceMesh middle{{DeviceId{1}, DeviceId{2}}};
  const auto proposal = grpo.propose(1e9, 1, {{}, {{"generate", middle}}, {}});
  ASSERT_TRUE(proposal && proposal->ahead);
  EXPECT_EQ(call_plan(proposal->ahead->plan, "generate").mesh, middle);
  EXPECT_EQ(call_plan(proposal->ahead->plan, "update_actor").mesh.devices.size(), 1u);
}

}  // namespace
}  // namespace braid::inline search
