// A plan on emulated ranks, for tests.
#pragma once

#include <gtest/gtest.h>

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

}  // namespace braid::inline emulate
