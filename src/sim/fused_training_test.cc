// Plans whose training calls are fused: their passes cost what they cost alone.
#include <gmock/gmock.h>

#include "plan/test_problem.h"
#include "sim/simulate.h"

namespace braid::inline sim {
namespace {

struct FusedCase {
  const char* name;
  Strategy actor, critic;
  std::vector<int> critic_devices;
};
void PrintTo(const FusedCase& one, std::ostream* out) { *out << one.name; }

Strategy train(int dp, int tp, int pp, int64_t micro_batches) {
  Strategy s;
  s.dp = dp, s.tp = tp, s.pp = pp, s.micro_batches = micro_batches;
  s.zero_stage = dp > 1 ? 1 : 0;
  return s;
}

const PlanningProblem& fused_problem() {
  static const PlanningProblem problem = make_test_problem({.gpu = "h100-80g"});
  return problem;
}

Trace run_updates(const FusedCase& one, bool fused) {
  ExecutionPlan plan = uniform_plan(fused_problem(), 1, 8, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "update_actor") call.strategy = one.actor;
    if (call.call != "update_critic") continue;
    call.strategy = one.critic;
    call.mesh.devices.clear();
    for (const int device : one.critic_devices) call.mesh.devices.push_back(DeviceId{device});
  }
  plan.fusion.train_schedules = fused;
  if (fused) plan.fusion.units = 4;
  const auto program = compile(plan, fused_problem());
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *simulate(*program, fused_problem(), committed_calibration(), {});
}

// From the first start to the last end of calls whose names begin so.
double training_s(const Trace& trace, const std::string& name = "update_") {
  double first = trace.step_s, last = 0;
  for (const CallSummary& call : trace.calls) {
    if (fused_problem().graph.calls[call.call.value].name.rfind(name, 0) != 0) continue;
    first = std::min(first, call.start_s), last = std::max(last, call.end_s);
  }
  return last - first;
}

class FusedTraining : public ::testing::TestWithParam<FusedCase> {};

TEST_P(FusedTraining, IsShorterThanOneAfterTheOther) {
  const Trace apart = run_updates(GetParam(), false), together = run_updates(GetParam(), true);
  EXPECT_LT(training_s(together), 0.95 * training_s(apart));
  EXPECT_GT(training_s(together), training_s(apart, "update_actor"));
  double busy_apart = 0, busy_together = 0;
  for (size_t i = 0; i < apart.calls.size(); ++i)
    busy_apart += apart.calls[i].busy_s, busy_together += together.calls[i].busy_s;
  EXPECT_NEAR(busy_together, busy_apart, 1e-9 * busy_apart) << "the same ops";
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, FusedTraining,
    ::testing::Values(
        FusedCase{"equal", train(1, 2, 4, 8), train(1, 2, 4, 8), {6, 7, 4, 5, 2, 3, 0, 1}},
        FusedCase{"copies", train(1, 2, 4, 8), train(2, 2, 2, 4), {2, 3, 6, 7, 0, 1, 4, 5}},
        FusedCase{"tensor_sizes", train(1, 4, 2, 4), train(2, 2, 2, 4), {4, 5, 6, 7, 0, 1, 2, 3}},
        FusedCase{"groups", train(2, 1, 4, 8), train(2, 1, 4, 8), {6, 7, 4, 5, 2, 3, 0, 1}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace braid::inline sim
