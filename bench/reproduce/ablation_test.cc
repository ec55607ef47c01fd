#include "ablation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/testing.h"
#include "base/text.h"
#include "plan/validate.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::reproduce {
namespace {

using ::testing::HasSubstr;

const SearchBudget kSmall = {.units = 2, .judged = 6, .threads = 2};

// Few samples of a small model on one node.
PlanningProblem small_problem(const std::string& algorithm) {
  Experiment experiment;
  experiment.algorithm = algorithm;
  experiment.actor = experiment.critic = "llama3.2-1b";
  experiment.gpu = "a100-40g";
  experiment.prompts = 64;
  experiment.minibatches = 2;
  experiment.response = fixed_length(256);
  experiment.response.kind = LengthDistribution::Kind::kLognormal;
  experiment.response.sigma = 0.6;
  experiment.response.longest = 1024;
  experiment.old_logprobs = "recompute";
  experiment.score_calls = true;
  return *make_experiment(experiment);
}

TEST(Ablation, RestrictedOptimaAreInTheirSpacesAndNotBelowTheWhole) {
  for (const char* algorithm : {"ppo", "grpo"}) {
    SCOPED_TRACE(algorithm);
    const PlanningProblem problem = small_problem(algorithm);
    const auto result = run_ablation(problem, committed_calibration(), kSmall, [] { return 0.0; });
    ASSERT_TRUE(result.ok()) << result.status().message();
    ASSERT_EQ(result->steps_s.size(), ablation_steps().size());
    for (size_t i = 1; i < result->steps_s.size(); ++i)
      EXPECT_LE(result->steps_s[i], result->steps_s[i - 1]) << ablation_steps()[i];
    EXPECT_LT(result->steps_s.back(), result->steps_s.front());
    const auto spaces = systems(problem);
    ASSERT_EQ(result->systems.size(), spaces.size());
    for (size_t i = 0; i < spaces.size(); ++i) {
      SCOPED_TRACE(spaces[i].name);
      const SystemResult& system = result->systems[i];
      ASSERT_TRUE(system.best.has_value());
      EXPECT_TRUE(system.best->verdict.fits);
      EXPECT_EQ(within(spaces[i], system.best->plan, problem).message(), "");
      EXPECT_EQ(within(whole_space(), system.best->plan, problem).message(), "");
      EXPECT_GE(system.best->verdict.step_s, result->ours.verdict.step_s);
    }
    EXPECT_TRUE(within(whole_space(), result->ours.plan, problem).ok());
  }
}

// Layouts that need room and roles that make it by waiting on the host: a search of few descents
// ends in the smaller spaces with what it does not come to in the whole one.
TEST(Ablation, WhereMemoryIsShortNoPartOfTheSpaceIsSearchedBetter) {
  const PlanningProblem problem = *ablation_problem({"ppo", "llama2-13b", 8, true});
  const CallPricer pricer = *CallPricer::make(problem, committed_calibration());
  SearchBudget budget;
  budget.threads = 2;
  budget.judge = remembering(simulator_judge(problem, committed_calibration()));
  const auto best_s = [&](const Restriction& restriction) {
    const auto found = optimum(problem, pricer, committed_calibration(), restriction, budget);
    return found.ok() ? found->best.verdict.step_s : INFINITY;
  };
  const double whole_s = best_s(whole_space());
  for (const Restriction& system : systems(problem))
    EXPECT_LE(whole_s, best_s(system)) << system.name;
}

// A change of a plan that leaves one space or another.
struct Outside {
  const char* restriction;
  void (*change)(ExecutionPlan& plan);
};

CallPlan& entry_of(ExecutionPlan& plan, const std::string& call) {
  for (CallPlan& entry : plan.calls)
    if (entry.call == call) return entry;
  BRAID_CHECK(false, call);
}

TEST(Ablation, EachRestrictionRefusesPlansOutsideOfIt) {
  const PlanningProblem problem = small_problem("ppo");
  const Outside cases[] = {
      {"real", [](ExecutionPlan& p) { entry_of(p, "update_actor").strategy.zero_stage = 3; }},
      {"real", [](ExecutionPlan& p) { p.fusion.migrate_below_samples = 8; }},
      {"app", [](ExecutionPlan& p) { entry_of(p, "values").strategy.tp = 2; }},
      {"app", [](ExecutionPlan& p) { p.fusion.train_schedules = true; }},
      {"rlhfuse", [](ExecutionPlan& p) { entry_of(p, "ref_logprob").mesh.devices.resize(4); }},
      {"rlhfuse", [](ExecutionPlan& p) { entry_of(p, "update_actor").strategy.zero_stage = 2; }},
      {"verl", [](ExecutionPlan& p) { entry_of(p, "generate").strategy.pp = 2; }},
      {"verl", [](ExecutionPlan& p) { entry_of(p, "ref_logprob").mesh.devices.resize(3); }},
      {"one layout", [](ExecutionPlan& p) { entry_of(p, "generate").strategy.tp = 2; }},
      {"layouts", [](ExecutionPlan& p) { entry_of(p, "generate").mesh.devices.resize(4); }},
      {"placement",
       [](ExecutionPlan& p) {
         p.roles.push_back({RoleId{"reference"}});
         p.roles.back().weights = Residency::kHost;
       }},
      {"all", [](ExecutionPlan& p) { p.staleness = 1; }}};
  std::vector<Restriction> all = systems(problem);
  for (const Restriction& step : steps_of_space(problem)) all.push_back(step);
  for (const Outside& one : cases) {
    SCOPED_TRACE(one.restriction);
    const auto space = std::find_if(all.begin(), all.end(),
                                    [&](const auto& r) { return r.name == one.restriction; });
    ASSERT_NE(space, all.end());
    ExecutionPlan plan = *published_plan("app", problem);
    if (one.restriction == std::string("real") || one.restriction == std::string("rlhfuse")) {
      for (CallPlan& entry : plan.calls) {
        entry.mesh = whole_cluster(problem.cluster);
        entry.strategy = Strategy();
        entry.strategy.dp = 8;
        entry.strategy.recompute =
            entry.call.rfind("update", 0) == 0 ? Recompute::kFull : Recompute::kNone;
      }
    } else {
      for (CallPlan& entry : plan.calls) {
        entry.mesh = whole_cluster(problem.cluster);
        entry.strategy.dp = 8, entry.strategy.tp = 1;
      }
    }
    plan.roles.clear();
    EXPECT_EQ(within(*space, plan, problem).message(), "");
    one.change(plan);
    EXPECT_THAT(within(*space, plan, problem).message(), HasSubstr(one.restriction));
  }
}

TEST(Ablation, ModelsOfAppAreOnHalves) {
  const PlanningProblem problem = small_problem("ppo");
  ExecutionPlan plan = *published_plan("app", problem);
  EXPECT_EQ(entry_of(plan, "ref_logprob").mesh.devices.size(), 4U);
  EXPECT_FALSE(overlaps(entry_of(plan, "ref_logprob").mesh, entry_of(plan, "score_1").mesh));
  EXPECT_EQ(entry_of(plan, "generate").mesh.devices.size(), 8U);
}

TEST(Ablation, PerturbedPricesDifferAndMemoryDoesNot) {
  const Calibration& base = committed_calibration();
  const Calibration one = perturbed(base, 1), other = perturbed(base, 2);
  const EfficiencyKey key = efficiency_key(*find_gpu("h100-80g"), Precision::kBf16, "");
  const Efficiency was = resolve_efficiency(base, key), now = resolve_efficiency(one, key);
  const double ratio = now.matmul_share / was.matmul_share;
  EXPECT_TRUE(std::abs(ratio - 0.8) < 1e-9 || std::abs(ratio - 1.2) < 1e-9) << ratio;
  EXPECT_EQ(now.mem_reserve_factor, was.mem_reserve_factor);
  EXPECT_NE(one.offsets, other.offsets);
}

TEST(Ablation, PointsHaveAllSizes) {
  const auto points = ablation_points();
  EXPECT_EQ(points.size(), 28U);
  for (const AblationPoint& point : points) {
    const auto problem = ablation_problem(point);
    ASSERT_TRUE(problem.ok()) << words_of(point) << problem.status().message();
    EXPECT_EQ(device_count(problem->cluster), point.gpus);
  }
}

}  // namespace
}  // namespace braid::reproduce
