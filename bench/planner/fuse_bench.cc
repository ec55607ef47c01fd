// Fused pipeline schedules: the search beside the published results and the goals set for it, with
// split backwards, and on random problems of the same kinds. A run ends as soon as its goal is met.
// Prints tables; every schedule has passed verify. Exit code 1: a goal was missed.
// usage: fuse_bench [--seeds N=5] [--first-seed N=1] [--threads N=2] [--seconds S] [--cpu-clock]
//                   [--on] [--only NAME]... [published|memory|limited|split|random]...
// --seconds replaces the tables' own limits; --cpu-clock counts the process's processor time
// divided by the threads, for a machine with other work; --on goes on after the goal is met.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "fuse/fuse.h"
#include "fuse/published_instances.h"

namespace {

using namespace braid;

struct Setting {
  int seeds = 5;
  int first_seed = 1;
  int threads = 2;
  double seconds = 0;  // 0: the table's own
  bool cpu_clock = false;
  bool on = false;  // after the goal is met
  std::vector<std::string> only;
  std::vector<std::string> tables;
};

// A makespan, and at that makespan a peak.
struct Goal {
  double makespan = 0;
  double peak = 0;
};

struct Case {
  std::string name;
  PipelineProblem problem;
  FuseObjective objective = FuseObjective::kLatency;
  Goal goal;
  double seconds = 10;
};

double seconds_now(const Setting& setting) {
  if (setting.cpu_clock) return double(std::clock()) / CLOCKS_PER_SEC / setting.threads;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

bool meets(const Goal& goal, double makespan, double peak) {
  constexpr double kRounding = 1e-6;
  if (makespan < goal.makespan - kRounding) return true;
  return makespan <= goal.makespan + kRounding && peak <= goal.peak + kRounding;
}

struct Outcome {
  FuseResult result;
  double goal_s = -1;  // -1: not met
};

Outcome solve(const Case& one, uint64_t seed, const Setting& setting) {
  const double begin = seconds_now(setting);
  const double limit = setting.seconds > 0 ? setting.seconds : one.seconds;
  Outcome outcome;
  FuseOptions options;
  options.objective = one.objective;
  options.seed = seed;
  options.units.threads = setting.threads;
  options.units.elapsed_s = [&] { return seconds_now(setting) - begin; };
  options.improved = [&](const FuseImprovement& step) {
    if (outcome.goal_s < 0 && meets(one.goal, step.makespan, step.peak_memory))
      outcome.goal_s = options.units.elapsed_s();
  };
  options.units.stop = [&] {
    return (outcome.goal_s >= 0 && !setting.on) || options.units.elapsed_s() >= limit;
  };
  outcome.result = fuse_pipelines(one.problem, options).value();
  return outcome;
}

bool wanted(const Setting& setting, const std::string& name) {
  return setting.only.empty() ||
         std::find(setting.only.begin(), setting.only.end(), name) != setting.only.end();
}

constexpr double kAnyPeak = 1e9;

std::string goal_text(const Goal& goal) {
  if (goal.peak >= kAnyPeak) return format_double(goal.makespan);
  return cat(format_double(goal.makespan), " @ ", format_double(std::round(1e4 * goal.peak) / 1e4));
}

// One row per case: the goal, and of each seed what was found and after how many seconds the goal
// was met ("missed": it was not). Returns how many seeds missed.
int print_goals(const char* table, const std::vector<Case>& cases, const Setting& setting) {
  std::printf("%s\n%-6s %7s %14s %6s |", table, "id", "bound", "goal", "limit");
  for (int i = 0; i < setting.seeds; ++i)
    std::printf(" seed %-2d               ", setting.first_seed + i);
  std::printf("\n");
  int missed = 0;
  for (const Case& one : cases) {
    if (!wanted(setting, one.name)) continue;
    for (int i = 0; i < setting.seeds; ++i) {
      const Outcome outcome = solve(one, uint64_t(setting.first_seed + i), setting);
      if (i == 0)
        std::printf("%-6s %7g %14s %4g s |", one.name.c_str(), outcome.result.lower_bound,
                    goal_text(one.goal).c_str(),
                    setting.seconds > 0 ? setting.seconds : one.seconds);
      const std::string met =
          outcome.goal_s < 0 ? std::string("missed")
                             : cat(format_double(std::round(100 * outcome.goal_s) / 100), " s");
      std::printf(" %4g @ %5.2f %9s ", outcome.result.makespan, outcome.result.peak_memory,
                  met.c_str());
      std::fflush(stdout);
      missed += outcome.goal_s < 0 ? 1 : 0;
    }
    std::printf("\n");
  }
  return missed;
}

std::vector<Case> latency_cases() {
  std::vector<Case> cases;
  for (const PublishedInstance& one : published_instances())
    cases.push_back({one.name, problem_of(one), FuseObjective::kLatency, {one.bound, kAnyPeak}, 5});
  return cases;
}

// At the least latency no more memory than the authors', on four at least 5 % less.
std::vector<Case> memory_cases() {
  std::vector<Case> cases;
  for (const PublishedInstance& one : published_instances()) {
    const std::string name = one.name;
    double peak = one.peak;
    if (name == "exp0" || name == "exp3" || name == "exp4" || name == "exp6") peak *= 0.95;
    if (name == "exp1") continue;      // see limited_cases
    if (name == "exp9") peak = 42.64;  // the authors have no schedule of that length
    cases.push_back({name, problem_of(one), FuseObjective::kMemory, {one.bound, peak}, 60});
  }
  return cases;
}

std::vector<Case> limited_cases() {
  const auto limited = [](size_t number, double makespan, double limit) {
    const PublishedInstance& one = published_instances()[number];
    Case made{one.name, problem_of(one), FuseObjective::kLatency, {makespan, limit}, 60};
    made.problem.memory_limit = limit;
    return made;
  };
  return {limited(1, 373, 15.60), limited(9, 607, 38.72)};
}

std::vector<Case> split_cases() {
  static constexpr double kGoals[] = {684, 348, 182, 682, 346, 187, 590, 302, 158, 586, 298, 159};
  std::vector<Case> cases;
  for (const PublishedInstance& one : published_instances()) {
    Case made{one.name,
              with_split_backward(problem_of(one)),
              FuseObjective::kLatency,
              {kGoals[cases.size()], one.peak},
              10};
    made.problem.memory_limit = one.peak;
    cases.push_back(std::move(made));
  }
  return cases;
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

// The gap to the bound of random problems, each with another seed of the search: at most 0.5 % in
// the mean and 2.5 % at worst. Returns how many of the two goals were missed.
int print_random(const Setting& setting) {
  std::printf("%4s %5s %9s %5s %6s | %8s %8s %7s %7s\n", "seed", "nodes", "pipelines", "lag",
              "limit", "bound", "ours", "gap %", "best_s");
  double total = 0, worst = 0;
  int solved = 0;
  constexpr int kProblems = 20;
  for (int i = 0; i < kProblems; ++i) {
    const int seed = setting.first_seed + i;
    if (!wanted(setting, cat(seed))) continue;
    Case one;
    one.problem = held_out_problem(uint64_t(seed));
    const FuseResult result = solve(one, uint64_t(seed), setting).result;
    const double gap = 100 * (result.makespan / result.lower_bound - 1);
    total += gap;
    worst = std::max(worst, gap);
    ++solved;
    std::printf("%4d %5d %9zu %5g %6g | %8g %8g %7.2f %7.2f\n", seed, one.problem.nodes,
                one.problem.pipelines.size(), one.problem.communication,
                one.problem.memory_limit.value_or(0), result.lower_bound, result.makespan, gap,
                result.log.back().elapsed_s);
    std::fflush(stdout);
  }
  const double mean = total / std::max(solved, 1);
  std::printf("gap to the bound: mean %.2f %% (goal 0.50 %%), worst %.2f %% (goal 2.50 %%)\n", mean,
              worst);
  return (mean > 0.5 ? 1 : 0) + (worst > 2.5 ? 1 : 0);
}

int run_table(const std::string& table, const Setting& setting) {
  if (table == "published")
    return print_goals("least latency, no memory limit", latency_cases(), setting);
  if (table == "memory")
    return print_goals("least memory at the least latency", memory_cases(), setting);
  if (table == "limited")
    return print_goals("least latency at the serial schedule's memory", limited_cases(), setting);
  if (table == "split")
    return print_goals("split backward, least latency at the authors' memory", split_cases(),
                       setting);
  if (table == "random") return print_random(setting);
  std::fprintf(stderr, "unknown table %s: published, memory, limited, split or random\n",
               table.c_str());
  std::exit(2);
}

Setting parse_setting(int argc, char** argv) {
  Setting setting;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (name == "--seeds") {
      setting.seeds = std::max(1, std::atoi(value()));
    } else if (name == "--first-seed") {
      setting.first_seed = std::max(1, std::atoi(value()));
    } else if (name == "--threads") {
      setting.threads = std::max(1, std::atoi(value()));
    } else if (name == "--seconds") {
      setting.seconds = std::atof(value());
    } else if (name == "--cpu-clock") {
      setting.cpu_clock = true;
    } else if (name == "--on") {
      setting.on = true;
    } else if (name == "--only") {
      setting.only.emplace_back(value());
    } else {
      setting.tables.push_back(name);
    }
  }
  if (setting.tables.empty())
    setting.tables = {"published", "memory", "limited", "split", "random"};
  return setting;
}

}  // namespace

int main(int argc, char** argv) {
  const Setting setting = parse_setting(argc, argv);
  int missed = 0;
  for (const std::string& table : setting.tables) missed += run_table(table, setting);
  std::printf("%d missed; %d threads, %s clock\n", missed, setting.threads,
              setting.cpu_clock ? "processor" : "wall");
  return missed > 0 ? 1 : 0;
}
