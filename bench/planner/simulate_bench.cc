// How fast the simulator is: instructions per second on one thread, and the time of one PPO step on
// 8 to 128 devices, compilation and verification included. Every plan fits memory; one that does
// not is an error.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/text.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "pricing/efficiency.h"
#include "sim/simulate.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Size {
  int nodes;
  const char *actor, *critic;
};
constexpr Size kSizes[] = {{1, "llama2-7b", "llama2-7b"},
                           {2, "llama2-13b", "llama2-7b"},
                           {4, "codellama-34b", "llama2-7b"},
                           {8, "llama2-70b", "llama2-7b"},
                           {16, "llama2-70b", "llama2-70b"}};

// Everything on all devices: generation with tp 8, all else with tp 8 and pipelines.
ExecutionPlan make_plan(const PlanningProblem& problem, int nodes) {
  ExecutionPlan plan = uniform_plan(problem, nodes, 8, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "generate") continue;
    const int pp = std::min(nodes, 4);
    call.strategy.dp = nodes / pp, call.strategy.pp = pp;
    call.strategy.micro_batches = 8;
    if (call.call.rfind("update", 0) != 0) continue;
    call.strategy.recompute = Recompute::kFull;
    call.strategy.zero_stage = call.strategy.dp > 1 ? 1 : 0;
  }
  return plan;
}

int measure(const Size& size) {
  TestProblem test;
  const int nodes = size.nodes;
  test.actor = size.actor, test.critic = size.critic;
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
    const Status fits = trace.ok() ? check_memory(*trace) : trace.status();
    if (!fits.ok()) {
      std::fprintf(stderr, "%d GPUs: %s\n", nodes * 8, fits.message().c_str());
      return 1;
    }
    instructions = trace->instructions, step_s = trace->step_s;
  }
  std::printf("%5d %-28s %10.3f %10.3f %12lld %8.2f %10.1f\n", nodes * 8,
              cat(size.actor, " + ", size.critic).c_str(), compile_s * 1e3, best * 1e3,
              static_cast<long long>(instructions), static_cast<double>(instructions) / best / 1e6,
              step_s);
  return 0;
}

}  // namespace
}  // namespace braid

int main() {
  std::printf("PPO, 512 samples\n");
  std::printf("%5s %-28s %10s %10s %12s %8s %10s\n", "GPUs", "actor + critic", "compile ms",
              "sim ms", "instructions", "M/s", "step s");
  for (const braid::Size& size : braid::kSizes)
    if (braid::measure(size) != 0) return 1;
  return 0;
}
