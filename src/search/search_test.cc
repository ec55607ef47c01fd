// The search over execution plans: legal options, pruning that loses nothing, incremental prices,
// and the portfolio against enumeration.
#include <gmock/gmock.h>

#include "base/units.h"
#include "config/algorithm_traits.h"
#include "optimize/exhaustive.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "pricing/efficiency.h"
#include "program/program.h"
#include "search/judge.h"
#include "search/sample.h"
#include "search/simulate.h"
#include "search/test_search.h"
#include "sim/simulate.h"

namespace braid::inline search {
namespace {

using ::testing::HasSubstr;

// A problem with its pricer and space; the space points into the problem, so it stays put.
struct Fixture {
  explicit Fixture(PlanningProblem wanted, bool prune = true) : problem(std::move(wanted)) {
    Result<CallPricer> made = CallPricer::make(problem, committed_calibration());
    BRAID_CHECK(made.ok(), made.status().message());
    pricer = std::move(made).value();
    Result<PlanSpace> built = make_plan_space(problem, *pricer, {.prune = prune, .allowed = {}});
    status = built.status();
    if (built.ok()) space = std::move(built).value();
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  PlanningProblem problem;
  std::optional<CallPricer> pricer;
  Status status;
  PlanSpace space;
};

// Few samples and devices: spaces that can be enumerated.
PlanningProblem tiny(const std::string& algorithm, int devices) {
  PlanningProblem problem = make_test_problem({.algorithm = algorithm,
                                               .actor = "llama3.2-1b",
                                               .critic = "llama3.2-1b",
                                               .gpu = "a100-40g",
                                               .nodes = 1,
                                               .devices = devices,
                                               .prompts = 8,
                                               .minibatches = 2});
  return problem;
}

SearchOptions search_options(int64_t max_units, int threads = 1) {
  SearchOptions options;
  options.units.max_units = max_units;
  options.units.threads = threads;
  return options;
}

TEST(PlanSpace, EveryOptionIsLegal) {
  Fixture f(make_test_problem({.nodes = 3, .devices = 8, .prompts = 384}));
  ASSERT_TRUE(f.status.ok()) << f.status.message();
  const PlanDomain domain(f.space);
  RandomStream random(3, 1);
  for (int i = 0; i < 300; ++i) {
    const ExecutionPlan plan = plan_of(f.space, domain.random_state(random).choice);
    const Status status = validate(plan, f.problem);
    ASSERT_TRUE(status.ok()) << status.message() << "\n" << plan_to_yaml(plan);
  }
}

TEST(PlanSpace, PpoHasThreeSegments) {
  Fixture f(tiny("ppo", 2));
  ASSERT_TRUE(f.status.ok()) << f.status.message();
  ASSERT_EQ(f.space.segments.size(), 3U);
  EXPECT_EQ(f.space.segments[0].size(), 1U);  // generate
  EXPECT_EQ(f.space.segments[2].size(), 2U);  // both updates
}

TEST(PlanSpace, SaysWhichCallFitsNowhere) {
  Fixture f(make_test_problem({.actor = "llama2-70b", .gpu = "a100-40g", .devices = 1}));
  ASSERT_EQ(f.status.code(), Code::kInfeasible);
  EXPECT_THAT(f.status.message(), HasSubstr("fits on no mesh"));
  EXPECT_THAT(f.status.message(), HasSubstr("do not fit on 1 x a100-40g"));
}

TEST(PlanDomain, IncrementalCostsEqualFullOnes) {
  for (const char* algorithm : {"ppo", "grpo"}) {
    Fixture f(make_test_problem({.algorithm = algorithm, .nodes = 2, .prompts = 64}));
    ASSERT_TRUE(f.status.ok()) << f.status.message();
    const PlanDomain domain(f.space);
    RandomStream random(1, 7);
    PlanState state = domain.random_state(random);
    for (int i = 0; i < 2000; ++i) {
      const PlanChoice change = domain.propose(state, random);
      const PlanCost announced = domain.cost_after(state, change);
      domain.apply(state, change);
      ASSERT_EQ(announced, state.cost);
      ASSERT_EQ(state.cost, evaluate(f.space, assignment_of(f.space, state.choice)));
    }
  }
}

TEST(PlanDomain, TimelineEndsAtTheStepTime) {
  Fixture f(make_test_problem({.nodes = 2, .prompts = 64}));
  ASSERT_TRUE(f.status.ok());
  const PlanDomain domain(f.space);
  RandomStream random(1, 9);
  for (int i = 0; i < 50; ++i) {
    const PlanState state = domain.random_state(random);
    int64_t latest = 0;
    for (const CallTiming& call : timeline(f.space, state.plan)) {
      EXPECT_GE(call.end_us, call.start_us);
      latest = std::max(latest, call.end_us);
    }
    EXPECT_EQ(latest, state.cost.time_us);
  }
}

int64_t enumerated_optimum(const PlanSpace& space) {
  const PlanDomain domain(space);
  PlanState state = domain.fixed_start();
  optimize::exhaustive_search(domain, state);
  EXPECT_EQ(state.cost.excess_bytes, 0);
  return state.cost.time_us;
}

TEST(PlanSearch, ProvesTheOptimumOfEnumeration) {
  for (const char* algorithm : {"grpo", "sft"}) {
    Fixture f(tiny(algorithm, 1));
    ASSERT_TRUE(f.status.ok()) << f.status.message();
    const Result<Found> found = search_plans(f.space, search_options(300));
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_TRUE(found->proven);
    EXPECT_EQ(found->lower_bound_us, found->best_cost_us);
    EXPECT_EQ(found->best_cost_us, enumerated_optimum(f.space)) << algorithm;
    EXPECT_TRUE(validate(found->plan, f.problem).ok());
  }
}

// The search knows calls, not algorithms: each has a legal plan that is no slower than one layout
// for all calls.
TEST(PlanSearch, EveryAlgorithmHasALegalPlan) {
  for (const std::string& name : algorithm_names()) {
    SCOPED_TRACE(name);
    PlanningProblem problem = tiny(name, 2);
    problem.workload.samples_per_prompt = compares_groups(default_options(name)) ? 4 : 1;
    const Result<Found> found = searched_plan(problem, 4, 0);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(validate(found->plan, problem).message(), "");
    EXPECT_EQ(found->plan.graph, name);
    EXPECT_LE(found->lower_bound_us, found->best_cost_us);
    const Judge judge = simulator_judge(problem, committed_calibration());
    for (const auto& [dp, tp] : {std::pair(2, 1), std::pair(1, 2)}) {
      const auto uniform = judge(uniform_plan(problem, dp, tp, 1));
      ASSERT_TRUE(uniform.ok()) << uniform.status().message();
      if (uniform->peak_bytes <= uniform->capacity_bytes) {
        EXPECT_LE(step_s(found), uniform->step_s) << dp;
      }
    }
  }
}

TEST(PlanSearch, PruningKeepsTheOptimum) {
  for (const char* algorithm : {"sft", "rm"}) {
    Fixture pruned(tiny(algorithm, 4)), full(tiny(algorithm, 4), false);
    ASSERT_TRUE(pruned.status.ok() && full.status.ok());
    size_t kept = 0, all = 0;
    for (const CallSpace& call : pruned.space.calls) kept += call.options.size();
    for (const CallSpace& call : full.space.calls) all += call.options.size();
    EXPECT_LT(kept, all);
    const Result<Found> with = search_plans(pruned.space, search_options(300));
    const Result<Found> without = search_plans(full.space, search_options(300));
    ASSERT_TRUE(with.ok() && without.ok());
    ASSERT_TRUE(with->proven && without->proven);
    EXPECT_EQ(with->best_cost_us, without->best_cost_us) << algorithm;
  }
}

TEST(PlanSearch, ResultIsAFunctionOfUnitsForAnyNumberOfThreads) {
  Fixture f(make_test_problem({.nodes = 2, .prompts = 128}));
  ASSERT_TRUE(f.status.ok());
  const Result<Found> alone = search_plans(f.space, search_options(18, 1));
  const Result<Found> together = search_plans(f.space, search_options(18, 3));
  ASSERT_TRUE(alone.ok() && together.ok());
  EXPECT_EQ(alone->plan, together->plan);
  EXPECT_EQ(alone->lower_bound_us, together->lower_bound_us);
  EXPECT_EQ(alone->evaluations, together->evaluations);
  EXPECT_LE(alone->lower_bound_us, alone->best_cost_us);
}

// The committed bench bench/planner/rank_bench.cc does the same with 200 plans on more problems.
TEST(PlanSample, EvaluatorOrdersRandomPlansAsTheSimulatorDoes) {
  Fixture f(make_test_problem({}));
  ASSERT_TRUE(f.status.ok());
  const Judge judge = simulator_judge(f.problem, committed_calibration());
  const RankCorrelation report = rank_correlation(random_plans(f.space, 60, 1), f.space, judge);
  EXPECT_EQ(report.plans, 60);
  EXPECT_LE(report.misfits, 3);
  EXPECT_GE(report.correlation, 0.98);
}

TEST(PlanSample, EvaluatorOrdersItsBestPlansAsTheSimulatorDoes) {
  Fixture f(make_test_problem({}));
  ASSERT_TRUE(f.status.ok());
  const Judge judge = simulator_judge(f.problem, committed_calibration());
  const RankCorrelation report = rank_correlation(best_plans(f.space, 100, 1), f.space, judge);
  EXPECT_EQ(report.plans, 100);
  EXPECT_LE(report.misfits, 3);
  EXPECT_GE(report.correlation, 0.9);
  EXPECT_LE(report.median_error, 0.001);
}

TEST(PlanSample, SpearmanOfKnownLists) {
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {10, 20, 30, 40}), 1);
  EXPECT_DOUBLE_EQ(spearman({1, 2, 3, 4}, {4, 3, 2, 1}), -1);
  EXPECT_NEAR(spearman({1, 2, 3, 4, 5}, {2, 1, 4, 3, 5}), 0.8, 1e-12);
  EXPECT_NEAR(spearman({1, 1, 2}, {1, 2, 3}), 0.8660254, 1e-6);
}

TEST(PlanSearch, TheJudgeDecidesBetweenCandidates) {
  Fixture f(make_test_problem({.nodes = 1, .prompts = 64}));
  ASSERT_TRUE(f.status.ok());
  SearchOptions options = search_options(16);
  options.polish = false;
  const Result<Found> cheapest = search_plans(f.space, options);
  ASSERT_TRUE(cheapest.ok());
  int asked = 0;
  const Judge judge = [&](const ExecutionPlan& plan) -> Result<Verdict> {
    ++asked;
    Verdict verdict;
    verdict.step_s = plan == cheapest->plan ? 2 : 1;
    return verdict;
  };
  const Result<Found> found = search_plans(f.space, options, judge);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(static_cast<int>(found->judged.size()), asked);
  EXPECT_FALSE(found->plan == cheapest->plan);
  EXPECT_EQ(found->verdict->step_s, 1);
}

Judge judge_with_memory(const Fixture& f, double factor) {
  const double capacity = f.space.whole_bytes.front();
  return [&f, factor, capacity](const ExecutionPlan& plan) -> Result<Verdict> {
    BRAID_ASSIGN(Verdict verdict, evaluator_judge(f.problem, *f.pricer)(plan));
    verdict.capacity_bytes = capacity;
    verdict.peak_bytes *= factor;
    verdict.fits = verdict.peak_bytes <= capacity;
    return verdict;
  };
}

// The judge needs more memory than the evaluator knows of: the search goes on among smaller plans.
TEST(PlanSearch, WhatTheJudgeFindsTooLargeIsSearchedSmaller) {
  Fixture f(make_test_problem({.nodes = 1, .prompts = 64}));
  ASSERT_TRUE(f.status.ok());
  SearchOptions options = search_options(24);
  options.polish = false;
  const Result<Found> plain = search_plans(f.space, options, judge_with_memory(f, 1));
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const double factor = 1.1 * f.space.whole_bytes.front() / plain->verdict->peak_bytes;
  const Result<Found> smaller = search_plans(f.space, options, judge_with_memory(f, factor));
  ASSERT_TRUE(smaller.ok()) << smaller.status().message();
  EXPECT_TRUE(smaller->verdict->fits);
  EXPECT_GE(smaller->verdict->step_s, plain->verdict->step_s);
  EXPECT_EQ(search_plans(f.space, options, judge_with_memory(f, 100)).status().code(),
            Code::kInfeasible);
}

// A margin that no plan leaves is given up, and said so.
TEST(PlanSearch, TheMarginIsKeptWhereAPlanCan) {
  Fixture f(make_test_problem({.nodes = 1, .prompts = 64}));
  ASSERT_TRUE(f.status.ok());
  SearchOptions options = search_options(8);
  options.polish = false;
  for (const double margin : {0.0, 0.3, 0.89}) {
    options.margin = margin;
    for (size_t d = 0; d < f.space.capacity_bytes.size(); ++d)
      f.space.capacity_bytes[d] = (1 - margin) * f.space.whole_bytes[d];
    const Result<Found> found = search_plans(f.space, options, judge_with_memory(f, 1));
    ASSERT_TRUE(found.ok()) << found.status().message();
    const double share = found->verdict->peak_bytes / found->verdict->capacity_bytes;
    EXPECT_EQ(found->margin > 0, margin == 0.3) << margin;
    EXPECT_LE(share, 1 - found->margin);
  }
}

// PPO of 7B on half of the memory of four devices keeps about 160 GiB on the host.
TEST(PlanSearch, HostMemoryLimitsWhatWaitsThere) {
  PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 64});
  problem.memory_limit_gib = 40;
  const auto held_gib = [&](const ExecutionPlan& plan) {
    const auto program = compile(plan, problem);
    BRAID_CHECK(program.ok(), program.status().message());
    const auto trace = simulate(*program, problem, committed_calibration(), {});
    BRAID_CHECK(trace.ok(), trace.status().message());
    return trace->hosts.at(0).bytes / kGib;
  };
  const Result<Found> free = searched_plan(problem, 16);
  ASSERT_TRUE(free.ok()) << free.status().message();
  EXPECT_GT(held_gib(free->plan), 100);

  problem.host_memory_gib = held_gib(free->plan) - 1;
  const Result<Found> limited = searched_plan(problem, 16);
  ASSERT_TRUE(limited.ok()) << limited.status().message();
  EXPECT_LE(held_gib(limited->plan), problem.host_memory_gib);

  problem.host_memory_gib = 20;
  const Result<Found> refused = searched_plan(problem, 16);
  ASSERT_EQ(refused.status().code(), Code::kInfeasible);
  EXPECT_THAT(refused.status().message(), HasSubstr("plan.host_memory_gib=20"));
  EXPECT_THAT(refused.status().message(), HasSubstr("plan.memory_limit_gib=40"));
}

}  // namespace
}  // namespace braid::inline search
