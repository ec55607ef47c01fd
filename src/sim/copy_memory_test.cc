// What a copy of weights in another layout takes beside the home copy.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "sim/simulate.h"

namespace braid::inline sim {
namespace {

constexpr double kHalfBytes = 2;  // of a number in 16 bit

// Of the weights of a small model on two devices.
struct CopyCase {
  PlanningProblem problem = make_test_problem(
      {.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 2, .prompts = 16});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);  // every call has all on each device

  Strategy& training() {
    for (CallPlan& call : plan.calls)
      if (call.call == "update_actor") return call.strategy;
    ADD_FAILURE() << "no training";
    return plan.calls[0].strategy;
  }

  // The most that copies take on a device.
  double copy_bytes(int device) const {
    SimOptions options;
    options.memory_curve = true;
    const auto trace = simulate(*compile(plan, problem), problem, committed_calibration(), options);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    double most = 0;
    for (const MemoryPoint& point : trace->devices[device].memory)
      most = std::max(most, point.use[MemoryOwner::kCopies]);
    return most;
  }

  const ModelSize& model() const { return problem.models.at("actor").spec; }
  double whole_bytes() const { return kHalfBytes * static_cast<double>(total_params(model())); }
  double home_bytes(int device) {
    const ParamLayout home = param_layout({{DeviceId{0}, DeviceId{1}}}, training());
    return kHalfBytes * held_parameters(tensor_kinds(model(), false), home, model().layers, device);
  }
};

TEST(CopyMemory, StageOfTheTrainingIsShared) {
  CopyCase of;
  of.training().dp = 1, of.training().pp = 2;
  for (const int device : {0, 1}) {
    EXPECT_LT(of.home_bytes(device), 0.7 * of.whole_bytes());
    EXPECT_DOUBLE_EQ(of.copy_bytes(device), of.whole_bytes() - of.home_bytes(device));
  }
}

// A matrix of which a device holds a slice, or wants one, is not shared.
TEST(CopyMemory, SlicesOfOtherCutsAreNot) {
  CopyCase of;
  of.training().dp = 1, of.training().tp = 2;
  const ModelSize& model = of.model();
  const double norms =
      kHalfBytes * static_cast<double>(model.hidden * (model.layer_norms * model.layers + 1));
  EXPECT_DOUBLE_EQ(of.copy_bytes(0), of.whole_bytes() - norms);
  CopyCase reverse;
  for (CallPlan& call : reverse.plan.calls)
    if (call.call != "update_actor" && call.call != "ref_logprob")
      call.strategy.dp = 1, call.strategy.tp = 2;
  EXPECT_GT(reverse.copy_bytes(0), 0.49 * reverse.whole_bytes());
}

TEST(CopyMemory, SlicesAndWeightsOnTheHostAreNot) {
  CopyCase slices;
  slices.training().zero_stage = 3;
  EXPECT_DOUBLE_EQ(slices.copy_bytes(0), slices.whole_bytes());
  CopyCase host;
  host.training().dp = 1, host.training().pp = 2;
  host.plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kDevice}};
  EXPECT_DOUBLE_EQ(host.copy_bytes(0), host.whole_bytes());
}

}  // namespace
}  // namespace braid::inline sim
