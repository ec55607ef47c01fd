// Weights that are slices (ZeRO-3) and move between layouts: what a step takes longer for it.
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

PlanningProblem problem_of(bool follows) {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo",
                                               .actor = "qwen2.5-0.5b",
                                               .devices = 4,
                                               .prompts = 32,
                                               .minibatches = 1});
  if (follows) problem.graph = with_moving_reference(problem.graph, 1);
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
  // Of a call: gathers on each device, and messages.
  std::map<DeviceId, std::vector<TraceEvent>> gathers(const std::string& call) const {
    std::map<DeviceId, std::vector<TraceEvent>> out;
    for (const TraceEvent& event : trace.events)
      if (is_of(event, call) && event.device == event.peer) out[event.device].push_back(event);
    return out;
  }
  std::vector<TraceEvent> messages(const std::string& call) const {
    std::vector<TraceEvent> out;
    for (const TraceEvent& event : trace.events)
      if (is_of(event, call) && event.device != event.peer) out.push_back(event);
    return out;
  }
  double start_of(const std::string& call) const {
    for (const CallSummary& each : trace.calls)
      if (trace.call_names[each.call.value] == call) return each.start_s;
    ADD_FAILURE() << call;
    return 0;
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

// All of the model comes together on each device before any message goes, and generation waits.
TEST(MovedSlices, OfAHomeCopyAreGatheredBeforeTheyAreSent) {
  const PlanningProblem problem = problem_of(false);
  const Simulated run = with_events(plan_of(problem, {"update_actor"}), problem);
  const auto gathers = run.gathers("generate");
  ASSERT_EQ(gathers.size(), 4u);
  const double seconds = gather_s(run, problem, "actor");
  EXPECT_GT(seconds, 0);
  double gathered = 0;
  for (const auto& [device, events] : gathers) {
    ASSERT_EQ(events.size(), 1u);
    EXPECT_NEAR(events[0].end_s - events[0].start_s, seconds, 1e-9);
    EXPECT_NEAR(events[0].bytes, bytes_of_model(), 1);
    gathered = std::max(gathered, events[0].end_s);
  }
  const auto messages = run.messages("generate");
  ASSERT_FALSE(messages.empty());
  for (const TraceEvent& message : messages) EXPECT_GE(message.start_s, gathered - 1e-12);
  EXPECT_GE(run.start_of("generate"), gathered);
  const Simulated whole = with_events(plan_of(problem, {}), problem);
  EXPECT_TRUE(whole.gathers("generate").empty());
}

// Where the reader has slices, ranks tell each other what came, when all of it has.
TEST(MovedSlices, OfATargetAreSharedWhenTheyHaveCome) {
  const PlanningProblem problem = problem_of(false);
  const Simulated run = with_events(plan_of(problem, {"old_logprob"}), problem);
  const auto gathers = run.gathers("old_logprob");
  ASSERT_EQ(gathers.size(), 4u);
  for (const auto& [device, events] : gathers) {
    ASSERT_EQ(events.size(), 1u);
    EXPECT_NEAR(events[0].bytes / bytes_of_model(), 1, 1e-3);
    EXPECT_GE(run.start_of("old_logprob"), events[0].end_s);
    for (const TraceEvent& message : run.messages("old_logprob"))
      if (message.device == device) {
        EXPECT_LE(message.end_s, events[0].start_s + 1e-12);
      }
  }
}

// The computing thread brings slices: nothing is computed meanwhile.
TEST(MovedSlices, TakeTheTimeOfTheirDevice) {
  const PlanningProblem problem = problem_of(false);
  const Simulated run = with_events(plan_of(problem, {"old_logprob"}), problem);
  int beside = 0;
  for (const auto& [device, events] : run.gathers("old_logprob"))
    for (const TraceEvent& event : run.trace.events)
      if (event.device == device && event.track == TrackKind::kCompute &&
          event.start_s < events[0].end_s - 1e-12 && event.end_s > events[0].start_s + 1e-12)
        ++beside;
  EXPECT_EQ(beside, 0);
}

// A reference in slices gathers all of the actor's, whenever it follows.
TEST(MovedSlices, OfARoleThatIsFollowedAreGathered) {
  const PlanningProblem problem = problem_of(true);
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
