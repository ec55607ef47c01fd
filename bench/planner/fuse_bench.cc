// Fused pipeline schedules: the search beside the published results, with split backwards, and on
// random problems of the same kinds. Prints tables; every schedule has passed verify.
// usage: fuse_bench [SECONDS=10] [SEED=1] [THREADS=2] [published|memory|split|random]...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "schedule/fuse.h"
#include "schedule/published_instances.h"

namespace {

using namespace braid;

struct Setting {
  double seconds = 10;
  uint64_t seed = 1;
  int threads = 2;
};

FuseResult solve(const PipelineProblem& problem, const Setting& setting, FuseObjective objective) {
  const auto begin = std::chrono::steady_clock::now();
  FuseOptions options;
  options.objective = objective;
  options.seed = setting.seed;
  options.units.threads = setting.threads;
  options.units.elapsed_s = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  options.units.stop = [&options, &setting] {
    return options.units.elapsed_s() >= setting.seconds;
  };
  return fuse(problem, options).value();
}

void print_published(const Setting& setting, FuseObjective objective) {
  std::printf("%-6s %-8s %6s | %7s %7s %7s | %7s %7s %7s %6s %6s %s\n", "id", "models", "bound",
              "greedy", "authors", "peak", "ours", "peak", "best_s", "unit", "units", "proven");
  for (const PublishedInstance& instance : published_instances()) {
    const FuseResult result = solve(problem_of(instance), setting, objective);
    std::printf("%-6s %-8s %6g | %7g %7g %7.2f | %7g %7.2f %7.2f %6lld %6lld %s\n", instance.name,
                instance.models, instance.bound, instance.greedy_makespan, instance.makespan,
                instance.peak, result.makespan, result.peak_memory, result.log.back().elapsed_s,
                static_cast<long long>(result.log.back().unit),
                static_cast<long long>(result.units), result.optimal ? "yes" : "no");
    std::fflush(stdout);
  }
}

// At the authors' memory.
void print_split(const Setting& setting) {
  std::printf("%-6s | %7s %7s | %7s %7s %7s %7s\n", "id", "authors", "peak", "bound", "ours",
              "peak", "best_s");
  for (const PublishedInstance& instance : published_instances()) {
    PipelineProblem problem = with_split_backward(problem_of(instance));
    problem.memory_limit = instance.peak;
    const FuseResult result = solve(problem, setting, FuseObjective::kLatency);
    std::printf("%-6s | %7g %7.2f | %7g %7g %7.2f %7.2f\n", instance.name, instance.makespan,
                instance.peak, result.lower_bound, result.makespan, result.peak_memory,
                result.log.back().elapsed_s);
    std::fflush(stdout);
  }
}

// A pipeline over all nodes: down, up, or down and up again (V).
Pipeline random_pipeline(int32_t nodes, int32_t micro_batches, RandomStream& random) {
  Pipeline pipeline;
  pipeline.micro_batches = micro_batches;
  const uint64_t placement = random.below(4);
  for (int32_t s = 0; s < nodes; ++s)
    pipeline.stages.push_back(placement % 2 == 0 ? s : nodes - 1 - s);
  if (placement == 3)
    for (int32_t s = nodes - 1; s >= 0; --s) pipeline.stages.push_back(nodes - 1 - s);
  const double forward = double(2 + random.below(8));
  const bool uneven = random.below(2) == 0;
  for (size_t s = 0; s < pipeline.stages.size(); ++s) {
    pipeline.forward.push_back(forward + (uneven ? double(random.below(3)) : 0));
    pipeline.backward.push_back(2 * pipeline.forward.back());
    pipeline.memory.push_back(1 + double(random.below(3)) / 2);
  }
  return pipeline;
}

PipelineProblem held_out_problem(uint64_t seed) {
  RandomStream random(seed, 99);
  static constexpr int32_t kNodes[] = {4, 8, 16, 32};
  PipelineProblem problem;
  problem.nodes = kNodes[random.below(4)];
  const auto micro_batches = int32_t(problem.nodes << random.below(2));
  const uint64_t pipelines = 2 + random.below(3);
  for (uint64_t p = 0; p < pipelines; ++p) {
    problem.pipelines.push_back(
        random_pipeline(problem.nodes, std::max(4, micro_batches >> random.below(2)), random));
    problem.pipelines.back().name = cat("p", p);
  }
  if (random.below(2) == 0) problem.communication = double(random.below(3)) / 2;
  if (random.below(3) == 0) problem.memory_limit = 3.0 * problem.nodes;
  return problem;
}

void print_random(const Setting& setting) {
  std::printf("%4s %5s %9s %5s %6s | %8s %8s %7s\n", "seed", "nodes", "pipelines", "lag", "limit",
              "bound", "ours", "gap");
  double total = 0, worst = 0;
  constexpr int kProblems = 20;
  for (uint64_t seed = 1; seed <= kProblems; ++seed) {
    const PipelineProblem problem = held_out_problem(seed);
    const FuseResult result = solve(problem, setting, FuseObjective::kLatency);
    const double gap = 100 * (result.makespan / result.lower_bound - 1);
    total += gap;
    worst = std::max(worst, gap);
    std::printf("%4d %5d %9zu %5g %6g | %8g %8g %5.2f %%\n", int(seed), problem.nodes,
                problem.pipelines.size(), problem.communication, problem.memory_limit.value_or(0),
                result.lower_bound, result.makespan, gap);
    std::fflush(stdout);
  }
  std::printf("gap to the bound: mean %.2f %%, worst %.2f %%\n", total / kProblems, worst);
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  if (argc > 1) setting.seconds = std::atof(argv[1]);
  if (argc > 2) setting.seed = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) setting.threads = std::max(1, std::atoi(argv[3]));
  std::vector<std::string> tables(argv + std::min(argc, 4), argv + argc);
  if (tables.empty()) tables = {"published", "memory", "split", "random"};
  for (const std::string& table : tables) {
    std::printf("%s, %g s, seed %llu, %d threads\n", table.c_str(), setting.seconds,
                static_cast<unsigned long long>(setting.seed), setting.threads);
    if (table == "published") print_published(setting, FuseObjective::kLatency);
    if (table == "memory") print_published(setting, FuseObjective::kMemory);
    if (table == "split") print_split(setting);
    if (table == "random") print_random(setting);
  }
}
