// What is compiled and verified before a job computes: once the lists of all ranks, where the plan
// is made; on each rank its own list, and the ops of a mini-batch beside those of the ranks that it
// meets, once for each shape of a partition. A process for each size, so that memory is its own.
// The goal is for what a rank does of a job of kGoalDevices; exit code 1 where it is missed.
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/text.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "program/verify_ops.h"

namespace braid {
namespace {

constexpr int kGoalDevices = 4096;
constexpr double kGoal_s = 2, kGoal_mb = 200;

// Of this process on a processor: what else the machine does has no part in it.
double cpu_s() {
  timespec now;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double peak_mib() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Generation with tp 8; all else with tp 8 (on one node 2) and pipelines of four stages, updates
// with ZeRO-1.
ExecutionPlan make_plan(const PlanningProblem& problem, int devices) {
  ExecutionPlan plan = uniform_plan(problem, devices / 8, 8, 1);
  for (CallPlan& call : plan.calls) {
    if (call.call == "generate") continue;
    call.strategy.tp = devices < 32 ? 2 : 8, call.strategy.pp = 4;
    call.strategy.dp = devices / (call.strategy.tp * call.strategy.pp);
    call.strategy.micro_batches = 8;
    if (call.call.rfind("update", 0) != 0) continue;
    call.strategy.recompute = Recompute::kFull;
    call.strategy.zero_stage = call.strategy.dp > 1 ? 1 : 0;
  }
  return plan;
}

// One mini-batch of 16 samples for each data-parallel rank.
Partition partition_of(const Strategy& strategy) {
  std::vector<PartitionSample> samples;
  for (int64_t i = 0; i < int64_t{16} * strategy.dp; ++i)
    samples.push_back({SampleId{i}, GroupId{i / 4}, 100, 200 + i * 7919 % 800});
  PartitionOptions options;
  options.trains = true;
  return partition_samples(samples, strategy, options);
}

// Seconds that some work takes; its failure.
template <typename Work>
Result<double> timed(const Work& work) {
  const double begin = cpu_s();
  BRAID_TRY(work());
  return cpu_s() - begin;
}

PlanningProblem problem_of(int devices) {
  TestProblem test;
  test.algorithm = "grpo";
  test.actor = "llama2-70b";
  test.nodes = devices / 8, test.prompts = devices, test.samples = 4;
  return make_test_problem(test);
}

CallId update_of(const Graph& graph) {
  int32_t at = 0;
  while (graph.calls[at].kind != CallKind::kTrainStep) ++at;
  return CallId{at};
}

Status measure(int devices) {
  const PlanningProblem problem = problem_of(devices);
  const ExecutionPlan plan = make_plan(problem, devices);
  const double before_mib = peak_mib();
  Program own;
  BRAID_ASSIGN(const double own_s, timed([&] {
                 BRAID_ASSIGN(own, compile_rank(plan, problem, DeviceId{0}));
                 return ok_status();
               }));
  const CallFrame frame = call_frame(own, update_of(own.graph));
  const Partition partition = partition_of(frame.where->strategy);
  VerifiedShapes verified;
  const auto ops = [&] { return verified_ops(frame, DeviceId{0}, partition, &verified).status(); };
  BRAID_ASSIGN(const double first_s, timed(ops));
  BRAID_ASSIGN(const double again_s, timed(ops));
  const double rank_mib = peak_mib() - before_mib;
  BRAID_ASSIGN(const double all_s, timed([&] { return compile(plan, problem).status(); }));
  std::printf("%7d %10.3f %10.1f %10.4f %10.4f %10.1f %10.1f\n", devices, all_s,
              peak_mib() - before_mib, own_s, first_s, 1e3 * again_s, rank_mib);
  if (devices != kGoalDevices) return ok_status();
  const double took_s = own_s + first_s, took_mb = rank_mib * (1 << 20) / 1e6;
  const bool met = took_s <= kGoal_s && took_mb <= kGoal_mb;
  std::printf("a rank of %d: %.2f s (goal: %g), %.1f MB (goal: %g): %s\n", devices, took_s, kGoal_s,
              took_mb, kGoal_mb, met ? "met" : "NOT met");
  return met ? ok_status() : invalid_input("the goal is missed");
}

}  // namespace
}  // namespace braid

// verify_bench [DEVICES]...: 8, 16, or multiples of 32.
int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {8, 64, 1024, 4096};
  std::printf(
      "GRPO of llama2-70b, tp 8, pp 4: compiled and verified once, where the plan is made; on each "
      "rank\n");
  std::printf("%7s %10s %10s %10s %10s %10s %10s\n", "devices", "lists s", "MiB", "own list s",
              "ops s", "again ms", "MiB");
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
