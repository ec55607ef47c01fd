// What a rank of a large job does before it computes: compiles and verifies its list, and verifies
// the ops of a mini-batch, both of the first rank. A process for each size, so that memory is its
// own.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/text.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "program/verify_ops.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double peak_mib() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Generation with tp 8; all else with tp 8 and pipelines of four stages, updates with ZeRO-1.
ExecutionPlan make_plan(const PlanningProblem& problem, int nodes) {
  ExecutionPlan plan = uniform_plan(problem, nodes, 8, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "generate") continue;
    call.strategy.dp = nodes / 4, call.strategy.pp = 4;
    call.strategy.micro_batches = 8;
    if (call.call.rfind("update", 0) != 0) continue;
    call.strategy.recompute = Recompute::kFull;
    call.strategy.zero_stage = call.strategy.dp > 1 ? 1 : 0;
  }
  return plan;
}

// One mini-batch of 16 samples for each data-parallel rank.
Deal deal_of(const Strategy& strategy) {
  std::vector<DealSample> samples;
  for (int64_t i = 0; i < int64_t{16} * strategy.dp; ++i)
    samples.push_back({SampleId{i}, GroupId{i / 4}, 100, 200 + i * 7919 % 800});
  DealOptions options;
  options.trains = true;
  return deal(samples, strategy, options);
}

Status measure(int devices) {
  TestProblem test;
  test.algorithm = "grpo";
  test.actor = "llama2-70b";
  test.nodes = devices / 8, test.prompts = devices, test.samples = 4;
  const PlanningProblem problem = make_test_problem(test);
  const ExecutionPlan plan = make_plan(problem, devices / 8);
  const double before_mib = peak_mib();
  const auto begin = Clock::now();
  BRAID_ASSIGN(const Program program, compile(plan, problem));
  const double compile_s = seconds_since(begin), compile_mib = peak_mib() - before_mib;
  CallId update{-1};
  for (size_t i = 0; i < program.graph.calls.size(); ++i)
    if (program.graph.calls[i].kind == CallKind::kTrainStep)
      update = CallId{static_cast<int32_t>(i)};
  const CallFrame frame = call_frame(program, update);
  const Deal dealt = deal_of(frame.where->strategy);
  const auto start = Clock::now();
  VerifiedShapes verified;
  BRAID_TRY(verified_ops(frame, DeviceId{0}, dealt, &verified).status());
  const double ops_s = seconds_since(start);
  std::printf("%7d %12.3f %12.1f %12.4f %12.1f\n", devices, compile_s, compile_mib, ops_s,
              peak_mib() - before_mib);
  return ok_status();
}

}  // namespace
}  // namespace braid

// verify_bench [DEVICES]...: multiples of 32.
int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {64, 1024, 4096};
  std::printf(
      "GRPO of llama2-70b, tp 8, pp 4, rank 0: compile and verify; ops of one mini-batch\n");
  std::printf("%7s %12s %12s %12s %12s\n", "devices", "compile s", "MiB", "ops s", "MiB in all");
  for (const int size : sizes) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
      const braid::Status status = braid::measure(size);
      if (!status.ok()) std::fprintf(stderr, "%d: %s\n", size, status.message().c_str());
      std::exit(status.ok() ? 0 : 1);
    }
    int code = 0;
    if (child < 0 || ::waitpid(child, &code, 0) < 0 || code != 0) return 1;
  }
  return 0;
}
