// The twelve published instances of RLHFuse's schedule search (Zhong et al., arXiv 2409.13221):
// latency and memory of its authors beside ours, the greedy and the published annealing. A run ends
// once it has the least latency at the authors' memory; of all seeds the worst is printed. Our
// seconds are processor seconds divided by the threads, so that a machine may do other work.
// usage: reproduce_rlhfuse [SECONDS=60] [SEEDS=5] [THREADS=2] [ANNEALING_SECONDS=5]
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "experiment.h"
#include "fuse/classic.h"
#include "fuse/fuse.h"
#include "fuse/published_instances.h"

namespace {

using namespace braid;

struct Setting {
  double seconds = 60;
  int seeds = 5;
  int threads = 2;
  double annealing_s = 5;
};

struct Worst {
  double makespan = 0;
  double peak = 0;
  double seconds = 0;  // until its best schedule was found
  bool proven = true;
};

Worst worst_search(const PublishedInstance& instance, const Setting& setting) {
  constexpr double kRounding = 1e-6;
  Worst worst;
  for (int seed = 1; seed <= setting.seeds; ++seed) {
    const double begin = reproduce::processor_s();
    const auto elapsed_s = [&] { return (reproduce::processor_s() - begin) / setting.threads; };
    bool enough = false;
    FuseOptions options;
    options.objective = FuseObjective::kMemory;
    options.seed = uint64_t(seed);
    options.units.threads = setting.threads;
    options.units.elapsed_s = elapsed_s;
    options.improved = [&](const FuseImprovement& step) {
      enough = step.makespan <= instance.bound + kRounding &&
               step.peak_memory <= instance.peak + kRounding;
    };
    options.units.stop = [&] { return enough || elapsed_s() >= setting.seconds; };
    const FuseResult result = fuse_pipelines(problem_of(instance), options).value();
    worst.makespan = std::max(worst.makespan, result.makespan);
    worst.peak = std::max(worst.peak, result.peak_memory);
    worst.seconds = std::max(worst.seconds, result.log.back().elapsed_s);
    worst.proven = worst.proven && result.optimal;
  }
  return worst;
}

// As many steps as fit into the seconds, found out by a first short run.
double annealed_makespan(const PublishedInstance& instance, double seconds) {
  constexpr int64_t kTrial = 2000;
  const OpGraph graph = compile_ops(problem_of(instance));
  RandomStream random(1, 0);
  const double begin = reproduce::processor_s();
  published_annealing(graph, {.steps = kTrial}, random);
  const double step_s = std::max(1e-9, (reproduce::processor_s() - begin) / double(kTrial));
  const auto steps = static_cast<int64_t>(seconds / step_s);
  return earliest_starts(graph, published_annealing(graph, {.steps = steps}, random)).makespan;
}

}  // namespace

int main(int argc, char** argv) {
  Setting setting;
  if (argc > 1) setting.seconds = std::atof(argv[1]);
  if (argc > 2) setting.seeds = std::max(1, std::atoi(argv[2]));
  if (argc > 3) setting.threads = std::max(1, std::atoi(argv[3]));
  if (argc > 4) setting.annealing_s = std::atof(argv[4]);
  std::printf("ours: worst of %d seeds, %d threads, at most %g s; annealing: %g s, 1 thread\n",
              setting.seeds, setting.threads, setting.seconds, setting.annealing_s);
  std::printf("%-6s %-8s %6s | %7s %9s | %7s %7s %7s | %7s %7s %7s %s\n", "id", "models", "bound",
              "greedy", "annealing", "authors", "peak", "s", "ours", "peak", "s", "proven");
  for (const PublishedInstance& one : published_instances()) {
    const double annealed = annealed_makespan(one, setting.annealing_s);
    const Worst ours = worst_search(one, setting);
    std::printf("%-6s %-8s %6g | %7g %9g | %7g %7.2f %7g | %7g %7.2f %7.2f %s\n", one.name,
                one.models, one.bound, one.greedy_makespan, annealed, one.makespan, one.peak,
                one.wall_s, ours.makespan, ours.peak, ours.seconds, ours.proven ? "yes" : "no");
    std::fflush(stdout);
  }
}
