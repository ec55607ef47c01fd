// A plan on emulated ranks, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comm/world.h"
#include "emulate/emulate.h"

namespace braid::inline emulate {

// One step of it; an empty one, and a failure of the test, where it does not run.
inline Emulation emulated(World& world, const ExecutionPlan& plan, const PlanningProblem& problem,
                          const EmulationOptions& options = {}) {
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  auto out = emulate_step(world, *program, problem, committed_calibration(), options);
  EXPECT_TRUE(out.ok()) << out.status().message();
  return out.ok() ? *out : Emulation();
}

// That every op of the plan is where it is predicted, on the first rank.
inline void expect_where_predicted(World& world, const ExecutionPlan& plan,
                                   const PlanningProblem& problem) {
  const Emulation out = emulated(world, plan, problem, {.time_scale = 0.2});
  EXPECT_TRUE(out.misplaced.empty()) << out.misplaced.front();
  if (world.global_rank() != 0) return;
  const TraceDifference difference = compare_ops(out.predicted, out.emulated);
  EXPECT_EQ(difference.unpaired, 0);
  EXPECT_LT(difference.largest, 0.1) << emulation_text(out);
}

// What a step of a plan takes by the simulator, and the shortest of a few emulated ones: what a
// busy machine adds only makes them longer.
struct StepTimes {
  double predicted_s = 0, emulated_s = HUGE_VAL;
};
inline StepTimes step_times(World& world, const ExecutionPlan& plan,
                            const PlanningProblem& problem) {
  constexpr int kTimes = 3;
  StepTimes out;
  for (int i = 0; i < kTimes; ++i) {
    const Emulation one = emulated(world, plan, problem, {});
    EXPECT_THAT(one.misplaced, testing::IsEmpty());
    out.predicted_s = one.predicted.step_s;
    out.emulated_s = std::min(out.emulated_s, one.emulated.step_s);
  }
  return out;
}

}  // namespace braid::inline emulate
