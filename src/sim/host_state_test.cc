// State in host memory: what is paid for, and which roles go back.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "sim/simulate.h"

namespace braid {
namespace {

// Bytes that the calls move to host memory and from it on all devices, by name.
struct HostTraffic {
  std::map<std::string, double> in, out;
};

HostTraffic host_traffic(const ExecutionPlan& plan, const PlanningProblem& problem) {
  SimOptions options;
  options.events = true;
  const auto trace = simulate(*compile(plan, problem), problem, committed_calibration(), options);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  HostTraffic traffic;
  for (const TraceEvent& event : trace->events) {
    if (event.kind == EventKind::kLoad)
      traffic.in[trace->call_names[event.call.value]] += event.bytes;
    if (event.kind == EventKind::kOffload)
      traffic.out[trace->call_names[event.call.value]] += event.bytes;
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

}  // namespace
}  // namespace braid
