// A step with its trace, for tests.
#pragma once

#include <gtest/gtest.h>

#include "pricing/efficiency.h"
#include "program/program.h"
#include "sim/simulate.h"

namespace braid::inline sim {

// All that happens in it; an empty trace, and a failure of the test, where it cannot be simulated.
inline Trace traced(const Program& program, const PlanningProblem& problem) {
  SimOptions options;
  options.events = true;
  auto trace = simulate(program, problem, committed_calibration(), options);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  return trace.ok() ? *std::move(trace) : Trace();
}

inline Trace traced(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? traced(*program, problem) : Trace();
}

inline const CallSummary& summary_named(const Trace& trace, const std::string& call) {
  for (const CallSummary& each : trace.calls)
    if (trace.call_names[each.call.value] == call) return each;
  ADD_FAILURE() << "no " << call;
  return trace.calls.front();
}

}  // namespace braid::inline sim
