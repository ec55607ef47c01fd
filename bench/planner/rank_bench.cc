// Rank correlation of the search's evaluator with the simulator: over random plans that fit, and
// over the plans that the evaluator ranks best. Prints one row per problem. usage: rank_bench
// [plans = 200]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "search/sample.h"
#include "search/simulate.h"

namespace braid {
namespace {

struct Case {
  const char* name;
  PlanningProblem problem;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  out.push_back({"ppo 7b, 8 gpus", make_test_problem({})});
  out.push_back({"ppo 7b, 16 gpus", make_test_problem({.nodes = 2})});
  out.push_back({"grpo 13b, 32 gpus", make_test_problem({.algorithm = "grpo",
                                                         .actor = "llama2-13b",
                                                         .nodes = 4,
                                                         .prompts = 64,
                                                         .samples = 8,
                                                         .response_tokens = 1024})});
  PlanningProblem tail = make_test_problem({.nodes = 2, .response_tokens = 512});
  tail.workload.response.kind = LengthDistribution::Kind::kLognormal;
  tail.workload.response.sigma = 0.8;
  tail.workload.response.longest = 2048;
  out.push_back({"ppo 7b, 16 gpus, long tail", tail});
  out.push_back({"ppo 70b + 7b, 64 gpus",
                 make_test_problem({.actor = "llama2-70b", .nodes = 8, .prompts = 512})});
  return out;
}

void run(const Case& one, int count) {
  const auto begin = std::chrono::steady_clock::now();
  const auto pricer = CallPricer::make(one.problem, committed_calibration());
  const auto space = make_plan_space(one.problem, *pricer);
  if (!space.ok()) {
    std::printf("%s: %s\n", one.name, space.status().message().c_str());
    return;
  }
  const Judge judge = simulator_judge(one.problem, committed_calibration());
  const RankCorrelation random = rank_correlation(random_plans(*space, count, 1), *space, judge);
  const RankCorrelation best = rank_correlation(best_plans(*space, count, 1), *space, judge);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("| %s | %.4f | %.1f | %.4f | %.1f | %d of %d | %.0f |\n", one.name,
              random.correlation, 100 * random.median_error, best.correlation,
              100 * best.median_error, random.misfits + best.misfits, random.plans + best.plans,
              seconds);
  std::fflush(stdout);
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 200;
  std::printf(
      "| problem | random plans | median error %% | best plans | median error %% | do not fit "
      "after "
      "all | seconds |\n|---|---|---|---|---|---|---|\n");
  for (const auto& one : braid::cases()) braid::run(one, count);
}
