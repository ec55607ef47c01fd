#include "search/whole.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/test_problem.h"
#include "plan/validate.h"
#include "search/edits.h"
#include "search/judge.h"
#include "search/migration.h"
#include "search/test_search.h"

namespace braid::inline search {
namespace {

using testing::ElementsAre;

PlanningProblem whole_problem(const std::string& algorithm) {
  return make_test_problem({.algorithm = algorithm,
                            .actor = "llama3.2-1b",
                            .critic = "llama3.2-1b",
                            .gpu = "a100-40g",
                            .devices = 4,
                            .prompts = 32,
                            .minibatches = 2,
                            .looks_at_groups = true});
}

// A search over everything, in seconds.
struct WholeFixture {
  explicit WholeFixture(PlanningProblem wanted, PlanParts parts, SpaceOptions space = {})
      : problem(std::move(wanted)), pricer(*CallPricer::make(problem, committed_calibration())) {
    WholeOptions options;
    options.space = std::move(space);
    options.parts = parts;
    options.search.units.max_units = 2;
    options.search.judged = 6;
    options.search.polish = false;
    options.fusion.units = options.fusion.trial_units = 1;
    options.fusion.fused = 1;
    found = search_whole(problem, pricer, committed_calibration(), options);
  }
  WholeFixture(const WholeFixture&) = delete;
  WholeFixture& operator=(const WholeFixture&) = delete;

  PlanningProblem problem;
  CallPricer pricer;
  Result<WholeFound> found = invalid_input("not searched");
};

TEST(WholeSearch, EachPartIsUsedWhereItIsAllowedAlone) {
  const WholeFixture all(whole_problem("ppo"), {true, true, 1});
  ASSERT_TRUE(all.found.ok()) << all.found.status().message();
  EXPECT_GE(all.found->plain.verdict.step_s, all.found->fused_training.verdict.step_s);
  EXPECT_GE(all.found->fused_training.verdict.step_s, all.found->fused.verdict.step_s);
  EXPECT_GE(all.found->fused.verdict.step_s, all.found->predicted.verdict.step_s);
  EXPECT_GE(all.found->predicted.verdict.step_s, all.found->beside.verdict.step_s);
  EXPECT_GE(all.found->beside.verdict.step_s, all.found->best.verdict.step_s);
  EXPECT_LT(all.found->best.verdict.step_s, all.found->plain.verdict.step_s);
  for (const JudgedPlan* one : {&all.found->plain, &all.found->fused, &all.found->best}) {
    EXPECT_TRUE(one->verdict.fits);
    EXPECT_TRUE(validate(one->plan, all.problem).ok());
  }
  const PlanParts none{false, false, 0, false, false, false};
  const WholeFixture plain(whole_problem("ppo"), none);
  ASSERT_TRUE(plain.found.ok());
  EXPECT_EQ(plain.found->best.plan, plain.found->plain.plan);
  EXPECT_TRUE(allows(none, plain.found->best.plan));
  EXPECT_EQ(plain.found->tried, 0);
}

// Rollouts ahead need devices of their own, and leave no fusion.
TEST(WholeSearch, EditsOfStalenessGoBothWays) {
  const PlanningProblem problem = whole_problem("grpo");
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 2);
  const PlanParts parts{false, false, 1, false, false, false};
  EXPECT_TRUE(part_edits(plan, problem, parts).empty());
  for (CallPlan& entry : plan.calls) {
    const bool generates = find_call(problem.graph, entry.call)->kind == CallKind::kGenerate;
    entry.mesh = *contiguous_mesh(problem.cluster, generates ? 2 : 0, 2);
    entry.strategy = {};
    entry.strategy.dp = 2;
  }
  plan.fusion.migrate_below_samples = 4;
  const auto ahead = part_edits(plan, problem, parts);
  ASSERT_EQ(ahead.size(), 1U);
  EXPECT_EQ(ahead.front().staleness, 1);
  EXPECT_EQ(ahead.front().fusion, Fusion());
  const auto back = part_edits(ahead.front(), problem, parts);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back.front().staleness, 0);
}

TEST(WholeSearch, EditsOfFusionAreLegalAndChangeFusionAlone) {
  const PlanningProblem problem = whole_problem("ppo");
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 2);
  const auto edits = part_edits(plan, problem, {});
  EXPECT_EQ(edits.size(), 6U);  // fused, by predicted lengths, and four numbers of a hand-over
  for (const ExecutionPlan& edited : edits) {
    EXPECT_TRUE(validate(edited, problem).ok());
    EXPECT_FALSE(edited.fusion == plan.fusion);
    EXPECT_EQ(edited.staleness, 0);
  }
  EXPECT_TRUE(part_edits(plan, problem, {false, false, 0, false}).empty());
  EXPECT_FALSE(allows({false, true, 0}, edits[0]));
  EXPECT_TRUE(edits[1].fusion.predicted_lengths);
  EXPECT_FALSE(allows({true, true, 0, false}, edits[1]));
  EXPECT_FALSE(allows({true, false, 0}, edits.back()));
  plan.staleness = 1;
  EXPECT_FALSE(allows({}, plan));
  plan.staleness = 0;
  EXPECT_TRUE(allows({}, plan));
  plan.fusion.train_beside_scoring = 1;
  EXPECT_TRUE(allows({}, plan));
  EXPECT_FALSE(allows({true, true, 1, true, false}, plan));
  EXPECT_EQ(parts_text(plan), "training beside scoring");
}

// Of a hand-over that is there also how samples move; of an update how early it begins.
TEST(WholeSearch, EditsOfAHandOverAndOfAnEarlyUpdateAreThere) {
  PlanningProblem problem = whole_problem("grpo");
  problem.workload.minibatches = 8;
  ExecutionPlan plan = uniform_plan(problem, 2, 1, 2);
  plan.fusion.migrate_below_samples = 8;
  std::set<int64_t> numbers, early, copied;
  int tokens = 0;
  for (const ExecutionPlan& edited : part_edits(plan, problem, {})) {
    EXPECT_TRUE(validate(edited, problem).ok());
    const Fusion& fusion = edited.fusion;
    if (fusion.migrate_below_samples > 0) numbers.insert(fusion.migrate_to_samples);
    if (fusion.train_beside_scoring > 0) early.insert(fusion.train_beside_scoring);
    copied.insert(fusion.pre_copy_below_samples);
    tokens += fusion.migrate_cache ? 0 : 1;
  }
  EXPECT_THAT(copied, ElementsAre(0, 12, 16));
  EXPECT_THAT(numbers, ElementsAre(0, 4, 8, 16, 32));
  EXPECT_THAT(early, ElementsAre(1, 2, 4));
  EXPECT_EQ(tokens, 1);
  // Of one with copies ahead: without them, and other numbers of a hand-over, with copies where
  // those are fewer.
  plan.fusion.pre_copy_below_samples = 16;
  std::map<int64_t, int64_t> copied_at;
  for (const ExecutionPlan& edited : part_edits(plan, problem, {}))
    if (const Fusion& fusion = edited.fusion; fusion.migrate_below_samples != 8)
      copied_at[fusion.migrate_below_samples] = fusion.pre_copy_below_samples;
    else if (fusion == Fusion{.migrate_below_samples = 8})
      copied_at[8] = 0;
  EXPECT_EQ(copied_at.at(0), 0);
  EXPECT_EQ(copied_at.at(8), 0);
  for (const auto& [below, ahead] : copied_at) EXPECT_TRUE(ahead == 0 || ahead > below) << below;
  EXPECT_GT(copied_at.size(), 3u);
  plan.fusion = Fusion();
  plan.fusion.train_beside_scoring = 2;
  const auto edits = part_edits(plan, problem, {});
  EXPECT_TRUE(std::any_of(edits.begin(), edits.end(),
                          [](const ExecutionPlan& edited) { return edited.fusion == Fusion(); }));
  problem.workload.minibatches = 256;  // a hundred parts at most
  EXPECT_THAT(numbers_beside_scoring(problem), ElementsAre(3, 6, 12, 24, 48, 96, 192));
}

TEST(WholeSearch, PartsAreThoseOfTheGraph) {
  const auto names = [](const char* algorithm) {
    return part_names(parts_of(whole_problem(algorithm), 1));
  };
  EXPECT_THAT(names("ppo"),
              ElementsAre("fused updates", "a hand-over", "predicted lengths",
                          "weights that come over beside training", "rollouts ahead"));
  EXPECT_THAT(names("grpo"), ElementsAre("a hand-over", "predicted lengths",
                                         "training beside scoring", "rollouts ahead"));
  EXPECT_THAT(names("dpo"), ElementsAre("training beside scoring"));
  PlanningProblem once = whole_problem("dpo");
  once.workload.minibatches = 1;
  EXPECT_FALSE(has_parts(once));
}

PlanningProblem tailed_problem(const char* algorithm, double sigma) {
  PlanningProblem problem = whole_problem(algorithm);
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 256, sigma, 2048, {}};
  return problem;
}

// The number of a hand-over is the one that `auto` stands for, or a better one.
TEST(WholeSearch, NoPlanIsSlowerThanWithAutoInItsPlace) {
  for (const char* algorithm : {"ppo", "grpo"})
    for (const double sigma : {0.6, 1.0}) {
      const WholeFixture f(tailed_problem(algorithm, sigma), {false, true, 0, false, false});
      ASSERT_TRUE(f.found.ok()) << f.found.status().message();
      ExecutionPlan plan = f.found->best.plan;
      plan.fusion = Fusion();
      plan.fusion.migrate_below_samples = kAutoMigration;
      const auto chosen = with_chosen_migration(plan, f.problem, committed_calibration());
      if (!chosen.ok()) continue;
      const auto verdict = simulate_plan(*chosen, f.problem, committed_calibration(), {});
      ASSERT_TRUE(verdict.ok()) << verdict.status().message();
      EXPECT_LE(f.found->best.verdict.step_s, verdict->step_s) << algorithm << " " << sigma;
    }
}

// Where scorers have devices of their own, and among the plans that are judged elsewhere.
TEST(WholeSearch, UpdatesBeginEarlyWhereThatPays) {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo",
                                               .actor = "qwen2.5-0.5b",
                                               .gpu = "b200",
                                               .devices = 4,
                                               .prompts = 64,
                                               .samples = 4,
                                               .minibatches = 4,
                                               .prompt_tokens = 512,
                                               .response_tokens = 512});
  const PlanParts beside{false, false, 0, false, true, false};
  SpaceOptions apart;
  apart.allowed = [&problem](const CallPlan& entry) {
    const bool learns = find_call(problem.graph, entry.call)->kind == CallKind::kTrainStep;
    return entry.mesh == *contiguous_mesh(problem.cluster, learns ? 0 : 2, 2);
  };
  const WholeFixture kept(problem, beside, apart);
  ASSERT_TRUE(kept.found.ok()) << kept.found.status().message();
  EXPECT_GT(kept.found->best.plan.fusion.train_beside_scoring, 0);
  EXPECT_LT(kept.found->best.verdict.step_s, kept.found->plain.verdict.step_s);
  EXPECT_TRUE(validate(kept.found->best.plan, problem).ok());
  const CallPricer pricer = *CallPricer::make(problem, committed_calibration());
  WholeOptions options;
  options.search.units.max_units = 1;
  options.search.units.threads = 1;
  options.search.judged = 2;
  options.search.polish = false;
  options.parts = beside;
  int judged = 0;
  options.judge =
      [&, asked = simulator_judge(problem, committed_calibration())](const ExecutionPlan& plan) {
        const auto scorer = call_plan(plan, "ref_logprob").mesh;
        if (plan.fusion.train_beside_scoring > 0 &&
            !overlaps(scorer, call_plan(plan, "update_actor").mesh))
          ++judged;
        return asked(plan);
      };
  const auto found = search_whole(problem, pricer, committed_calibration(), options);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_GT(judged, 0);
}

// Generation on one half of the devices, the update on the other.
TEST(WholeSearch, UpdatesBeginBesideTheGenerationWhereThatPays) {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo",
                                               .actor = "qwen2.5-0.5b",
                                               .gpu = "b200",
                                               .devices = 4,
                                               .prompts = 64,
                                               .samples = 4,
                                               .minibatches = 1,
                                               .prompt_tokens = 512,
                                               .response_tokens = 512,
                                               .looks_at_groups = true});
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = 2048;
  const PlanParts parts{false, true, 0, false, false};
  SpaceOptions apart;
  apart.allowed = [&problem](const CallPlan& entry) {
    const bool draws = find_call(problem.graph, entry.call)->kind == CallKind::kGenerate;
    return entry.mesh == *contiguous_mesh(problem.cluster, draws ? 2 : 0, 2);
  };
  const WholeFixture kept(problem, parts, apart);
  ASSERT_TRUE(kept.found.ok()) << kept.found.status().message();
  const JudgedPlan& best = kept.found->best;
  EXPECT_TRUE(best.plan.fusion.train_beside_generation) << best.plan;
  EXPECT_LT(best.verdict.step_s, kept.found->plain.verdict.step_s);
  EXPECT_THAT(parts_text(best.plan), testing::HasSubstr("training beside generation"));
  const PlanSpace space = *make_plan_space(problem, kept.pricer, apart);
  EXPECT_GE(best.verdict.step_s, 1e-6 * static_cast<double>(whole_bound_us(space, parts)));
  EXPECT_LT(whole_bound_us(space, parts), whole_bound_us(space, {false, false, 0, false, false}));
  // What goes with a hand-over goes with it.
  EXPECT_EQ(without_hand_over(best.plan.fusion), Fusion());
  int toggled = 0;
  for (const ExecutionPlan& edited : part_edits(best.plan, problem, parts))
    toggled += edited.fusion.train_beside_generation ? 0 : 1;
  EXPECT_GT(toggled, 1);
}

// Where no time is left, nothing of a part is judged.
TEST(WholeSearch, LeavesOutWhatNoTimeIsLeftFor) {
  const PlanningProblem problem = whole_problem("ppo");
  const CallPricer pricer = *CallPricer::make(problem, committed_calibration());
  WholeOptions options;
  options.search.units.max_units = 1;
  options.search.judged = 2;
  options.search.late = [](double) { return true; };
  options.parts = parts_of(problem, 1);
  const auto found = search_whole(problem, pricer, committed_calibration(), options);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->skipped, part_names(options.parts));
  EXPECT_EQ(found->tried, 0);
  // Once a part has begun, too: the time passes with the first judgement of a fused plan.
  for (const bool fused : {true, false}) {
    bool passed = false;
    const Judge asked = simulator_judge(problem, committed_calibration());
    options.found = found->found;
    options.parts = {fused, !fused, 0, false, false, false};
    options.search.late = [&](double) { return passed; };
    options.judge = [&](const ExecutionPlan& plan) {
      EXPECT_FALSE(passed);
      passed = passed || !(plan.fusion == Fusion());
      return asked(plan);
    };
    options.search.units.threads = 1;
    const auto begun = search_whole(problem, pricer, committed_calibration(), options);
    ASSERT_TRUE(begun.ok()) << begun.status().message();
    EXPECT_TRUE(passed);
    EXPECT_TRUE(begun->skipped.empty());
  }
}

TEST(WholeSearch, RolesRestWhereTheyMay) {
  SpaceOptions space;
  space.allowed_role = [](const RolePlan& role) { return role.role.value == "reference"; };
  PlanningProblem tight = whole_problem("ppo");
  tight.memory_limit_gib = 14;
  const WholeFixture limited(tight, {false, false, 0, false, false}, space);
  ASSERT_TRUE(limited.found.ok()) << limited.found.status().message();
  for (const JudgedPlan& judged : limited.found->found.judged)
    for (const RolePlan& role : judged.plan.roles) EXPECT_EQ(role.role.value, "reference");
}

// With a hand-over, or with scorers on devices of their own, from which edits begin.
ExecutionPlan plan_with_parts(const PlanningProblem& problem, bool handed) {
  ExecutionPlan plan = uniform_plan(problem, handed ? 4 : 2, 1, 1);
  if (handed) plan.fusion.migrate_below_samples = samples_of(problem) / 4;
  for (CallPlan& call : plan.calls) {
    const bool learns = find_call(problem.graph, call.call)->kind == CallKind::kTrainStep;
    if (learns) call.strategy.zero_stage = 3;  // room for both updates
    if (!handed) call.mesh = *contiguous_mesh(problem.cluster, learns ? 0 : 2, 2);
  }
  return plan;
}

// Which keys of fusion an edited plan has, counted by name.
void count_keys(const ExecutionPlan& plan, std::map<std::string, int>* seen) {
  const Fusion& of = plan.fusion;
  const std::pair<const char*, bool> keys[] = {
      {"train_schedules", of.train_schedules},
      {"migrate_below_samples", of.migrate_below_samples > 0},
      {"again", !of.migrate_again_below.empty()},
      {"migrate_to_samples", of.migrate_to_samples > 0},
      {"migrate_cache", !of.migrate_cache},
      {"pre_copy_below_samples", of.pre_copy_below_samples > 0},
      {"scored_prefixes", of.scored_prefixes},
      {"train_beside_generation", of.train_beside_generation},
      {"predicted_lengths", of.predicted_lengths},
      {"train_beside_scoring", of.train_beside_scoring > 0},
      {"sync_beside_training", of.sync_beside_training},
      {"staleness", plan.staleness > 0}};
  for (const auto& [key, on] : keys) (*seen)[key] += on ? 1 : 0;
}

// The same with the update apart from a generation that is handed over.
ExecutionPlan plan_apart(const PlanningProblem& problem) {
  ExecutionPlan plan = plan_with_parts(problem, false);
  plan.fusion.migrate_below_samples = samples_of(problem) / 4;
  return plan;
}

// Edits of what was found and of plain pipelines, with fusion and staleness among them.
TEST(WholeSearch, NoEditIsBelowTheBound) {
  for (const char* algorithm : {"ppo", "grpo"}) {
    SCOPED_TRACE(algorithm);
    const WholeFixture f(tailed_problem(algorithm, 0.8), {true, true, 1});
    ASSERT_TRUE(f.found.ok()) << f.found.status().message();
    const PlanSpace space = *make_plan_space(f.problem, f.pricer);
    const double bound_s = static_cast<double>(whole_bound_us(space, {true, true, 1})) / 1e6;
    const double synchronous_s = static_cast<double>(whole_bound_us(space, {})) / 1e6;
    EXPECT_GT(bound_s, 0);
    EXPECT_LE(bound_s, synchronous_s);
    const Judge judge = simulator_judge(f.problem, committed_calibration());
    int compared = 0;
    std::map<std::string, int> seen;
    for (uint64_t i = 0; i < (full_tier() ? 200U : 20U); ++i)
      for (const ExecutionPlan& from :
           {f.found->fused.plan, f.found->best.plan, uniform_plan(f.problem, 2, 1, 2),
            plan_with_parts(f.problem, true), plan_with_parts(f.problem, false),
            plan_apart(f.problem)}) {
        RandomStream random(11, i);
        ExecutionPlan edited = random_edit(from, f.problem, random);
        const auto parts = part_edits(edited, f.problem, {true, true, 1});
        if (const size_t part = random.below(parts.size() + 1); part < parts.size())
          edited = parts[part];
        const Result<Verdict> verdict = judge(edited);
        if (!verdict.ok() || !verdict->fits) continue;
        const double least_s = edited.staleness > 0 ? bound_s : synchronous_s;
        EXPECT_GE(verdict->step_s, kProvenShare * least_s) << edited;
        ++compared;
        count_keys(edited, &seen);
      }
    EXPECT_GT(compared, 10);
    for (const char* key : {"migrate_below_samples", "predicted_lengths", "staleness"})
      EXPECT_GT(seen[key], 0) << key;
    if (!full_tier()) continue;  // too few edits for each
    for (const auto& [key, count] : seen) {
      const bool of_ppo = key == "train_schedules";
      const bool of_grpo = key == "train_beside_generation" || key == "train_beside_scoring";
      EXPECT_EQ(count > 0, algorithm == std::string("ppo") ? !of_grpo : !of_ppo) << key;
    }
  }
}

}  // namespace
}  // namespace braid::inline search
