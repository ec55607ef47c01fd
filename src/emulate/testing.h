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

}  // namespace braid::inline emulate
