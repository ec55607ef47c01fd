// Roles that follow others whose weights are slices (ZeRO-3).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "dataflow/graph.h"
#include "plan/test_problem.h"
#include "program/listed_messages.h"
#include "program/placement.h"
#include "program/program.h"
#include "sim/call_cost.h"
#include "sim/testing.h"

namespace braid::inline sim {
namespace {

PlanningProblem following_problem() {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo",
                                               .actor = "qwen2.5-0.5b",
                                               .devices = 4,
                                               .prompts = 32,
                                               .minibatches = 1});
  problem.graph = with_moving_reference(problem.graph, 1);
  return problem;
}

// The calls of these names have slices, the others whole weights; all on four devices.
ExecutionPlan plan_of(const PlanningProblem& problem, const std::vector<std::string>& sliced) {
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  for (CallPlan& call : plan.calls)
    if (std::find(sliced.begin(), sliced.end(), call.call) != sliced.end())
      call.strategy.zero_stage = 3;
  return plan;
}

struct Simulated {
  Program program;
  Trace trace;
  // Of a call, on each device.
  std::map<DeviceId, std::vector<TraceEvent>> gathers(const std::string& call) const {
    std::map<DeviceId, std::vector<TraceEvent>> out;
    for (const TraceEvent& event : trace.events)
      if (is_of(event, call) && event.device == event.peer) out[event.device].push_back(event);
    return out;
  }

 private:
  bool is_of(const TraceEvent& event, const std::string& call) const {
    return event.kind == EventKind::kReallocation && trace.call_names[event.call.value] == call;
  }
};

Simulated with_events(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const auto program = compile(plan, problem);
  BRAID_CHECK(program.ok(), program.status().message());
  return {*program, traced(*program, problem)};
}

double bytes_of_model() {
  return 2.0 * static_cast<double>(total_params(*find_model("qwen2.5-0.5b")));
}

// Seconds of all layers, each gathered by itself.
double gather_s(const Simulated& run, const PlanningProblem& problem, const std::string& role) {
  const int32_t home = home_copy(run.program, RoleId{role});
  const CallCost cost =
      *CallCost::make(run.program, user_of(run.program, home), problem, committed_calibration());
  double out = 0;
  for (const int64_t bytes : gathered_weights(*find_shape(run.program, RoleId{role}),
                                              run.program.copies[home].layout, DeviceId{0}))
    if (bytes > 0) out += cost.gather_slices_s(static_cast<double>(bytes));
  return out;
}

// A reference in slices gathers all of the actor's, whenever it follows.
TEST(FollowedSlices, AreGathered) {
  const PlanningProblem problem = following_problem();
  const std::vector<std::string> all = {"update_actor", "ref_logprob"};
  const Simulated sliced = with_events(plan_of(problem, all), problem);
  const auto gathers = sliced.gathers("sync_reference");
  ASSERT_EQ(gathers.size(), 4u);
  for (const auto& [device, events] : gathers) {
    ASSERT_EQ(events.size(), 1u);
    EXPECT_NEAR(events[0].end_s - events[0].start_s, gather_s(sliced, problem, "actor"), 1e-9);
    EXPECT_NEAR(events[0].bytes, bytes_of_model(), 1);
    EXPECT_LE(events[0].start_s + 1e-12, sliced.trace.step_s);
  }
  EXPECT_TRUE(with_events(plan_of(problem, {}), problem).gathers("sync_reference").empty());
}

}  // namespace
}  // namespace braid::inline sim
