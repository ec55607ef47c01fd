// How fast the simulator is: instructions per second on one thread, and the time of one PPO step on
// 8 to 128 devices, compilation and verification included.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cost/efficiency.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "sim/simulate.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Everything on all devices: generation with tp 8, training with tp 8 and pipelines.
ExecutionPlan make_plan(const PlanningProblem& problem, int nodes) {
  ExecutionPlan plan = uniform_plan(problem, nodes, 8, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call.rfind("update", 0) != 0) continue;
    const int pp = nodes >= 4 ? 4 : nodes;
    call.strategy.dp = nodes / pp, call.strategy.pp = pp;
    call.strategy.micro_batches = 8;
    call.strategy.recompute = Recompute::kFull;
    call.strategy.zero_stage = call.strategy.dp > 1 ? 1 : 0;
  }
  return plan;
}

int measure(int nodes) {
  TestProblem test;
  test.actor = test.critic = "llama2-70b";
  test.nodes = nodes, test.prompts = 512, test.response_tokens = 1024;
  PlanningProblem problem = make_test_problem(test);
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 512, 0.7, 1024, {}};
  const auto begin = Clock::now();
  const auto program = compile(make_plan(problem, nodes), problem);
  const double compile_s = seconds_since(begin);
  if (!program.ok()) {
    std::fprintf(stderr, "%s\n", program.status().message().c_str());
    return 1;
  }
  double best = 1e30, step_s = 0;
  int64_t instructions = 0;
  for (int run = 0; run < 5; ++run) {
    const auto start = Clock::now();
    const auto trace = simulate(*program, problem, committed_calibration(), {});
    best = std::min(best, seconds_since(start));
    if (!trace.ok()) return 1;
    instructions = trace->instructions, step_s = trace->step_s;
  }
  std::printf("%5d %10.3f %10.3f %12lld %8.2f %10.1f\n", nodes * 8, compile_s * 1e3, best * 1e3,
              static_cast<long long>(instructions), static_cast<double>(instructions) / best / 1e6,
              step_s);
  return 0;
}

}  // namespace
}  // namespace braid

int main() {
  std::printf("PPO, 70B actor and critic, 512 samples\n");
  std::printf("%5s %10s %10s %12s %8s %10s\n", "GPUs", "compile ms", "sim ms", "instructions",
              "M/s", "step s");
  for (const int nodes : {1, 2, 4, 8, 16})
    if (braid::measure(nodes) != 0) return 1;
  return 0;
}
