// When a generation is handed over: the number that `auto` stands for, and what it gains.
#include "search/migration.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/testing.h"
#include "base/text.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"

namespace braid::inline search {
namespace {

using ::testing::HasSubstr;

PlanningProblem tailed_problem(double sigma, TestProblem test = {.gpu = "b200",
                                                                 .prompts = 96,
                                                                 .minibatches = 2,
                                                                 .prompt_tokens = 128,
                                                                 .response_tokens = 256}) {
  PlanningProblem problem = make_test_problem(test);
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = sigma;
  problem.workload.response.longest = 4 * test.response_tokens;
  return problem;
}

ExecutionPlan plan_of(const PlanningProblem& problem, int generate_tp = 1, int score_tp = 1) {
  const int devices = device_count(problem.cluster);
  ExecutionPlan plan = uniform_plan(problem, devices, 1, 1);
  for (CallPlan& call : plan.calls) {
    Strategy& s = call.strategy;
    if (call.call == "generate") {
      s.tp = generate_tp, s.dp = devices / generate_tp;
      continue;
    }
    s.micro_tokens = 4096;
    if (call.call.rfind("update", 0) == 0) {
      s.zero_stage = 1;
    } else {
      s.tp = score_tp, s.dp = devices / score_tp;
    }
  }
  plan.fusion.migrate_below_samples = kAutoMigration;
  return plan;
}

struct TailCase {
  const char* name;
  PlanningProblem problem;
  ExecutionPlan plan;
};

// Few and many replicas, groups, one and two nodes, tails of several shapes, long prompts.
std::vector<TailCase> tail_cases() {
  std::vector<TailCase> out;
  const auto add = [&](const char* name, const PlanningProblem& problem, int generate_tp = 1,
                       int score_tp = 1) {
    out.push_back({name, problem, plan_of(problem, generate_tp, score_tp)});
  };
  add("short tail", tailed_problem(0.6));
  add("long tail", tailed_problem(1.2));
  add("groups",
      tailed_problem(1, {.algorithm = "grpo",
                         .gpu = "b200",
                         .prompts = 12,
                         .samples = 8,
                         .minibatches = 2,
                         .prompt_tokens = 512,
                         .response_tokens = 512}),
      2);
  add("two nodes",
      tailed_problem(
          0.9,
          {.gpu = "b200", .nodes = 2, .prompts = 64, .minibatches = 2, .response_tokens = 512}),
      4, 2);
  add("long prompts", tailed_problem(0.8, {.gpu = "b200",
                                           .prompts = 64,
                                           .minibatches = 2,
                                           .prompt_tokens = 2048,
                                           .response_tokens = 128}));
  PlanningProblem few_long = tailed_problem(1);
  few_long.workload.response = {};
  few_long.workload.response.kind = LengthDistribution::Kind::kEmpirical;
  for (int i = 0; i < 10; ++i) few_long.workload.response.samples.push_back(i < 9 ? 100 + i : 900);
  add("one in ten is long", few_long, 2);
  return out;
}

double step_of(const TailCase& one, const Fusion& fusion) {
  ExecutionPlan plan = one.plan;
  plan.fusion = fusion;
  const auto verdict = simulate_plan(plan, one.problem, committed_calibration(), {});
  EXPECT_TRUE(verdict.ok()) << verdict.status().message();
  return verdict->fits ? verdict->step_s : HUGE_VAL;
}

// The least over every number of samples, or every third.
double exhaustive(const TailCase& one, Fusion fusion) {
  const int64_t samples = one.problem.workload.prompts * one.problem.workload.samples_per_prompt;
  double best = HUGE_VAL;
  for (int64_t below = 1; below < samples; below += full_tier() ? 1 : 3) {
    fusion.migrate_below_samples = below;
    best = std::min(best, step_of(one, fusion));
  }
  return best;
}

// Within a hundredth of the best of all numbers, whichever way samples move.
TEST(Migration, AutoIsAsGoodAsEveryNumber) {
  int handed = 0;
  for (const TailCase& one : tail_cases()) {
    const auto chosen = with_chosen_migration(one.plan, one.problem, committed_calibration());
    ASSERT_TRUE(chosen.ok()) << one.name << ": " << chosen.status().message();
    double best = std::min(step_of(one, {}), exhaustive(one, {}));
    Fusion moved = chosen->fusion;
    if (moved.migrate_below_samples > 0) ++handed, best = std::min(best, exhaustive(one, moved));
    if (full_tier())
      for (const int64_t most : {1, 2, 3, 5, 7, 9, 13, 17, 24, 32, 48})
        for (const bool cache : {true, false}) {
          moved.migrate_to_samples = most, moved.migrate_cache = cache;
          best = std::min(best, exhaustive(one, moved));
        }
    EXPECT_LE(step_of(one, chosen->fusion), 1.01 * best) << one.name;
  }
  EXPECT_GE(handed, 4);
}

// A run whose responses turn out to be alike, and one in which a few are much longer.
TEST(Migration, RecordedLengthsDecide) {
  PlanningProblem problem = make_test_problem({.actor = "qwen2.5-7b",
                                               .critic = "qwen2.5-7b",
                                               .gpu = "b200",
                                               .prompts = 96,
                                               .minibatches = 2,
                                               .prompt_tokens = 1024,
                                               .response_tokens = 256});
  problem.workload.response.longest = 1024;
  ExecutionPlan plan = plan_of(problem);
  for (CallPlan& call : plan.calls)
    if (call.call.starts_with("update")) call.strategy.zero_stage = 3;  // room for caches
  const SampleLengths alike{std::vector<int64_t>(96, 1024), std::vector<int64_t>(96, 256)};
  SampleLengths tailed = alike;
  for (size_t row = 0; row < 96; row += 12) tailed.response[row] = 1024;
  const auto recorded = [](const std::vector<SampleLengths>& steps) {
    SimulationOptions out;
    out.steps = steps;
    return out;
  };
  const auto chosen = [&](const std::vector<SampleLengths>& steps) {
    const auto curve = migration_curve(plan, problem, committed_calibration(), recorded(steps));
    EXPECT_TRUE(curve.ok()) << curve.status().message();
    return fastest_of(*curve);
  };
  EXPECT_EQ(chosen({alike}).below, 0);
  EXPECT_GT(chosen({tailed}).below, 0);
  const auto apart_s = [&](const std::vector<SampleLengths>& steps) {
    return migration_curve(plan, problem, committed_calibration(), recorded(steps))->front().step_s;
  };
  EXPECT_DOUBLE_EQ(apart_s({alike, tailed}), (apart_s({alike}) + apart_s({tailed})) / 2);
  EXPECT_NE(apart_s({alike}), apart_s({tailed}));
}

TEST(Migration, OtherPlansStayAsTheyAre) {
  const PlanningProblem problem = tailed_problem(1);
  ExecutionPlan plan = plan_of(problem);
  EXPECT_EQ(parse_plan(plan_to_yaml(plan), "plan")->fusion.migrate_below_samples, kAutoMigration);
  for (const int64_t below : {0, 7}) {
    plan.fusion.migrate_below_samples = below;
    EXPECT_EQ(*with_chosen_migration(plan, problem, committed_calibration()), plan);
  }
}

TEST(Migration, TheCurveSaysWhatEachNumberGives) {
  const PlanningProblem problem = tailed_problem(1.2);
  const auto proposal = propose_migration(plan_of(problem), problem, committed_calibration());
  ASSERT_TRUE(proposal.ok()) << proposal.status().message();
  EXPECT_EQ(proposal->why_not, "");
  EXPECT_EQ(proposal->plan.fusion.migrate_below_samples, proposal->chosen.below);
  const MigrationPoint& apart = proposal->curve.front();
  EXPECT_EQ(apart.below, 0);
  for (const MigrationPoint& point : proposal->curve) {
    EXPECT_LT(point.generated_s, point.scored_s);
    EXPECT_LT(point.scored_s, point.step_s);
    EXPECT_TRUE(!point.fits || point.step_s >= proposal->chosen.step_s);
  }
  EXPECT_LT(proposal->chosen.scored_s, apart.scored_s);
  EXPECT_NEAR(proposal->chosen.step_s,
              step_of({"", problem, plan_of(problem)}, proposal->plan.fusion), 1e-9);
  const std::string text = migration_text(proposal);
  EXPECT_THAT(text, HasSubstr(cat("migrate_below_samples: ", proposal->chosen.below)));
  EXPECT_EQ(std::count(text.begin(), text.end(), '*'), 1);
}

// Where no time is left the first number is there, which is one of the usual ones.
TEST(Migration, EndsWhereItIsToldTo) {
  const PlanningProblem problem = tailed_problem(1.2);
  int asked = 0;
  const auto stopped = propose_migration(plan_of(problem), problem, committed_calibration(), {},
                                         {.stop = [&] { return ++asked > 2; }});
  ASSERT_TRUE(stopped.ok()) << stopped.status().message();
  EXPECT_EQ(stopped->curve.size(), 4U);  // without one, the first number, and two more
  const auto whole = propose_migration(plan_of(problem), problem, committed_calibration());
  EXPECT_LE(whole->chosen.step_s, stopped->chosen.step_s);
  // Of few numbers those are tried first that say most: nearly all of the gain is there.
  const auto few =
      propose_migration(plan_of(problem), problem, committed_calibration(), {}, {.points = 24});
  EXPECT_LE(few->curve.size(), 25U);
  EXPECT_LE(few->chosen.step_s, 1.01 * whole->chosen.step_s);
}

TEST(Migration, SaysWhyNothingIsHandedOver) {
  const auto why = [](const PlanningProblem& problem, const ExecutionPlan& plan) {
    return migration_text(propose_migration(plan, problem, committed_calibration()));
  };
  const PlanningProblem tailed = tailed_problem(1);
  ExecutionPlan one_replica = plan_of(tailed, 8);
  EXPECT_THAT(why(tailed, one_replica), HasSubstr("not possible: call generate has dp 1"));
  PlanningProblem equal = make_test_problem({.gpu = "b200", .prompts = 96, .minibatches = 2});
  EXPECT_THAT(why(equal, plan_of(equal)), HasSubstr("not worth it: all responses are equally"));
  // Where 7B models score 24 short samples, a step hardly notices.
  const PlanningProblem little = tailed_problem(0.5, {.algorithm = "grpo",
                                                      .gpu = "b200",
                                                      .prompts = 24,
                                                      .minibatches = 1,
                                                      .prompt_tokens = 16,
                                                      .response_tokens = 16});
  EXPECT_THAT(why(little, plan_of(little)), HasSubstr("not worth it: after the last sample"));
}

}  // namespace
}  // namespace braid::inline search
