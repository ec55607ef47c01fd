// Calls of the simulator on devices with a profile: collectives and passes take the measured times.
#include <gtest/gtest.h>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "sim/call_cost.h"

namespace braid {
namespace {

// Seconds of one micro-batch of the reference model, tensor-parallel over two devices, where every
// exchange takes the given time.
double forward_s(double exchange_s) {
  const PlanningProblem problem = make_test_problem({.devices = 2, .prompts = 8});
  const Program program = *compile(uniform_plan(problem, 1, 2, 1), problem);
  Calibration calibration = committed_calibration();
  Profile profile;
  profile.gpu = *find_gpu("a100-80g");
  profile.collectives = {{"reduce_scatter", 2, true, 1, exchange_s},
                         {"reduce_scatter", 2, true, 1e12, exchange_s}};
  calibration.profiles = {profile};
  for (size_t i = 0; i < program.graph.calls.size(); ++i) {
    if (program.graph.calls[i].name != "ref_logprob") continue;
    const auto cost =
        CallCost::make(program, CallId{static_cast<int32_t>(i)}, problem, calibration);
    return cost->forward_s(cost->micro_batch({{500}, {500}}), 0);
  }
  return 0;
}

TEST(ProfiledCall, CollectivesTakeTheirMeasuredTime) {
  const double first_s = forward_s(0.1), second_s = forward_s(0.2), third_s = forward_s(0.4);
  EXPECT_GT(second_s, first_s + 1);  // several exchanges in each of 32 layers, partly hidden
  EXPECT_NEAR((third_s - second_s) / (second_s - first_s), 2, 0.01);
}

}  // namespace
}  // namespace braid
