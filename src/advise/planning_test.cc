// A plan as `braid plan` makes and shows it, of a problem that was read already.
#include "advise/planning.h"

#include <gmock/gmock.h>

#include "advise/planning_text.h"
#include "plan/test_problem.h"

namespace braid::inline advise {
namespace {

using testing::HasSubstr;
using testing::Not;

// What there is before the search. GRPO on two devices: small, and without parts it takes no time.
void prepare(Planning& planning, const TestProblem& sizes) {
  planning.problem = make_test_problem(sizes);
  planning.calibration = committed_calibration();
  planning.pricer = *CallPricer::make(planning.problem, planning.calibration);
}

TestProblem small() {
  return {.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 2, .prompts = 16, .samples = 4};
}

PlanRequest quick() {
  PlanRequest request;
  request.limits = {.max_units = 1, .threads = 1};
  request.whole = false;
  return request;
}

TEST(FindPlan, ProposesWhatIsPrinted) {
  Planning planning;
  prepare(planning, small());
  const PlanRequest request = quick();
  ASSERT_EQ(find_plan(request, planning).message(), "");
  EXPECT_TRUE(planning.proposed.verdict.fits);
  EXPECT_EQ(planning.seconds, 0) << "without a clock no time passes";
  PlanExtras extras;
  ASSERT_EQ(add_extras(request, planning, extras).message(), "");
  const std::string text = planning_text(planning, request, extras, {});
  EXPECT_THAT(text, HasSubstr("searched       1 units"));
  EXPECT_THAT(text, HasSubstr("(--layouts-only)"));
  EXPECT_THAT(text, Not(HasSubstr("what if")));
  const OrderedJson json = planning_json(planning, request, extras, {});
  EXPECT_EQ(json["step_s"], planning.proposed.verdict.step_s);
  EXPECT_EQ(json["executable"], executable(planning).ok());
}

// The configuration's own plan is the best: nothing is to be gained by another.
TEST(AddExtras, ComparesTheGivenPlan) {
  Planning planning;
  prepare(planning, small());
  PlanRequest request = quick();
  request.compare = true;
  ASSERT_EQ(find_plan(request, planning).message(), "");
  planning.given = planning.proposed.plan;
  PlanExtras extras;
  ASSERT_EQ(add_extras(request, planning, extras).message(), "");
  ASSERT_TRUE(extras.given);
  EXPECT_TRUE(extras.given->nothing_to_gain);
  ASSERT_GE(extras.rows.size(), 3u);
  EXPECT_EQ(extras.rows[1].name, "configuration");
  EXPECT_THAT(planning_text(planning, request, extras, {}), HasSubstr("nothing to gain"));
  request.export_to = "no such";
  EXPECT_EQ(add_extras(request, planning, extras).code(), Code::kInvalidInput);
}

// What `braid train` does not execute is said apart, and changes nothing of what it does.
TEST(BeyondTrainLine, StandsBesideThePlan) {
  Planning planning;
  TestProblem sizes = small();
  sizes.prompts = 1, sizes.samples = 2, sizes.minibatches = 1, sizes.devices = 8;
  sizes.prompt_tokens = 61440, sizes.response_tokens = 256;
  prepare(planning, sizes);
  PlanRequest request = quick();
  request.whole = true;
  ASSERT_EQ(find_plan(request, planning).message(), "");
  EXPECT_EQ(executable(planning).message(), "");
  EXPECT_EQ(planning.found.units, 1);
  PlanExtras extras;
  ASSERT_EQ(add_extras(request, planning, extras).message(), "");
  EXPECT_THAT(planning_text(planning, request, extras, {}),
              HasSubstr("\nbeyond train   context parallelism: "));
  const OrderedJson json = planning_json(planning, request, extras, {});
  EXPECT_EQ(json["executable"], true);
  EXPECT_EQ(json["beyond_train"]["pays"], true);
  EXPECT_EQ(json["beyond_train"]["proposed_s"], json["step_s"]);
  EXPECT_LT(json["beyond_train"]["step_s"], json["step_s"]);
}

TEST(BeyondTrainLine, KeepsWhatIsStated) {
  Planning planning;
  prepare(planning, small());
  PlanRequest request = quick();
  request.whole = request.keep = true;
  for (const char* call : {"ref_logprob", "update_actor", "old_logprob"})
    if (find_call(planning.problem.graph, call) != nullptr)
      planning.constraints.strategies[call] = {{"cp", 1}, {"ep", 1}, {"expert_tp", 0}};
  ASSERT_EQ(find_plan(request, planning).message(), "");
  PlanExtras extras;
  ASSERT_EQ(add_extras(request, planning, extras).message(), "");
  EXPECT_THAT(planning_text(planning, request, extras, {}), Not(HasSubstr("beyond train")));
  EXPECT_FALSE(planning_json(planning, request, extras, {}).contains("beyond_train"));
}

// An error of that search is a line, and the plan is printed all the same.
TEST(BeyondTrainLine, SaysWhatStoppedIt) {
  Planning planning;
  prepare(planning, small());
  PlanRequest request = quick();
  request.whole = true;
  ASSERT_EQ(find_plan(request, planning).message(), "");
  planning.judge = [](const ExecutionPlan&) { return Status(Code::kUnavailable, "no verdict"); };
  PlanExtras extras;
  ASSERT_EQ(add_extras(request, planning, extras).message(), "");
  const std::string text = planning_text(planning, request, extras, {});
  EXPECT_THAT(text, HasSubstr("beyond train   context and expert parallelism were not tried: "));
  EXPECT_THAT(text, HasSubstr("no verdict"));
  EXPECT_THAT(planning_json(planning, request, extras, {})["beyond_train"]["not_tried"],
              "no verdict");
}

// However short the time, there is a plan.
TEST(FindPlan, StopsByTheClockOfItsRequest) {
  Planning planning;
  prepare(planning, small());
  PlanRequest request = quick();
  request.limits = {.time_limit_s = 1.0, .threads = 1};
  double now_s = 0;
  request.clock = [&now_s] { return now_s += 0.5; };
  ASSERT_EQ(find_plan(request, planning).message(), "");
  EXPECT_GT(planning.seconds, 1.0);
  EXPECT_LE(planning.found.units, 4);
}

TEST(FindPlan, NamesTheSmallestClusterThatHoldsTheModel) {
  Planning planning;
  TestProblem sizes = small();
  sizes.actor = "llama2-70b";
  prepare(planning, sizes);
  const Status none = find_plan(quick(), planning);
  EXPECT_EQ(none.code(), Code::kInfeasible);
  EXPECT_THAT(none.message(), HasSubstr("the smallest cluster of these nodes that holds it: "));
}

}  // namespace
}  // namespace braid::inline advise
