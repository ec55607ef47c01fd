// State in host memory: what is paid for, and which roles go back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "sim/testing.h"

namespace braid::inline sim {
namespace {

using testing::HasSubstr;

// Bytes that the calls move to host memory and from it on all devices, by name.
struct HostTraffic {
  std::map<std::string, double> in, out;
};

HostTraffic host_traffic(const ExecutionPlan& plan, const PlanningProblem& problem) {
  const Trace trace = traced(plan, problem);
  HostTraffic traffic;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kLoad)
      traffic.in[trace.call_names[event.call.value]] += event.bytes;
    if (event.kind == EventKind::kOffload)
      traffic.out[trace.call_names[event.call.value]] += event.bytes;
  }
  return traffic;
}

// Weights that come for generation and inference go back unchanged, which costs nothing; training
// takes weights and optimizer both ways.
TEST(HostState, OnlyWhatTrainingChangesGoesBack) {
  const PlanningProblem problem = make_test_problem(
      {.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 2, .prompts = 16});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost},
                {RoleId{"reference"}, Residency::kHost}};
  for (RolePlan& role : plan.roles) role.timing = OffloadTiming::kAfterEachCall;
  const HostTraffic traffic = host_traffic(plan, problem);
  const double weights = 2 * 2.0 * static_cast<double>(total_params(*find_model("qwen2.5-0.5b")));
  for (const char* call : {"generate", "old_logprob", "ref_logprob"})
    EXPECT_NEAR(traffic.in.at(call), weights, 1e-6 * weights) << call;
  EXPECT_GT(traffic.in.at("update_actor"), weights);
  EXPECT_EQ(traffic.out,
            (std::map<std::string, double>{{"update_actor", traffic.in.at("update_actor")}}));
}

// The time of a step on the host hides no transfer, not even of devices that do not generate.
TEST(HostState, NothingMovesBeforeTheStepHasItsData) {
  const PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 16});
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kHost},
                {RoleId{"critic"}, Residency::kHost, Residency::kHost}};
  plan.roles[1].prefetch = true;
  const Trace trace = traced(plan, problem);
  ASSERT_EQ(trace.call_names[0], "fetch");
  EXPECT_GT(trace.calls[0].seconds(), 1);
  double busy_s = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == EventKind::kLoad) {
      EXPECT_GE(event.start_s, trace.calls[0].end_s);
    }
    if (event.track == TrackKind::kHostLink && event.device.value == 0)
      busy_s += event.end_s - event.start_s;
  }
  EXPECT_NEAR(trace.devices[0].transfer_s, busy_s, 1e-9);
}

// The loads of a call on the first device, and its first forward there.
struct LoadedCall {
  double first_load_s = 0, loads_s = 0;  // end of the first, and from there to that of the last
  double begin_s = 0, end_s = 0;         // of the forward
  double bytes = 0;
};

LoadedCall loaded_call(const Trace& trace, const std::string& name) {
  LoadedCall out;
  double first = 0, last = 0;
  bool passed = false;
  for (const TraceEvent& event : trace.events) {
    if (trace.call_names[event.call.value] != name || event.device.value != 0) continue;
    if (event.kind == EventKind::kLoad) {
      if (out.bytes == 0) first = event.end_s, out.first_load_s = event.end_s;
      last = std::max(last, event.end_s);
      out.bytes += event.bytes;
    } else if (event.kind == EventKind::kForward && !passed) {
      passed = true;
      out.begin_s = event.start_s, out.end_s = event.end_s;
    }
  }
  out.loads_s = last - first;
  return out;
}

// A pass begins when its first layers are there, waits for all further layers where it
// comes to them, and not for the last before that.
TEST(HostState, LayersComeBesideThePassThatUsesThem) {
  const PlanningProblem problem = make_test_problem(
      {.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 2, .prompts = 16});
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 1);
  // The actor comes for the call that scores with it and has nothing before to pass beside.
  plan.roles = {
      {RoleId{"actor"}, Residency::kHost, Residency::kHost, OffloadTiming::kAfterEachCall}};
  const LoadedCall whole = loaded_call(traced(plan, problem), "old_logprob");
  plan.roles[0].prefetch = true;
  const LoadedCall cut = loaded_call(traced(plan, problem), "old_logprob");
  EXPECT_NEAR(cut.bytes, whole.bytes, 1e-6 * whole.bytes);
  EXPECT_GE(whole.begin_s, whole.first_load_s);
  EXPECT_LT(cut.begin_s, cut.first_load_s + cut.loads_s);
  EXPECT_GE(cut.begin_s, cut.first_load_s);
  EXPECT_LT(cut.end_s, whole.end_s);
}

TEST(HostState, AHostHoldsNoMoreThanItHas) {
  PlanningProblem problem = make_test_problem(
      {.actor = "qwen2.5-0.5b", .critic = "qwen2.5-0.5b", .devices = 4, .prompts = 16});
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 1);
  plan.roles = {{RoleId{"critic"}, Residency::kHost, Residency::kHost}};
  const Trace trace = traced(plan, problem);
  ASSERT_EQ(trace.hosts.size(), 1U);
  const double params = static_cast<double>(total_params(*find_model("qwen2.5-0.5b")));
  EXPECT_GT(trace.hosts[0].bytes, 4 * 2 * params);
  EXPECT_EQ(memory_problem(trace), "");
  problem.host_memory_gib = 0.9 * trace.hosts[0].bytes / kGib;
  const Trace limited = traced(plan, problem);
  EXPECT_THAT(memory_problem(limited), HasSubstr("the host of node 0 runs out of memory"));
  EXPECT_EQ(check_memory(limited).code(), Code::kInfeasible);
  problem.may_offload = false;
  EXPECT_THAT(validate(plan, problem).message(), HasSubstr("plan.offload is never"));
}

}  // namespace
}  // namespace braid::inline sim
