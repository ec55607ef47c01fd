// Context and expert parallelism in the search: legal layouts, a bound that no edit is below, and
// the proposal beside the plan that `braid train` can have.
#include "search/beyond_train.h"

#include <gmock/gmock.h>

#include "plan/executable.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "search/edits.h"
#include "search/judge.h"
#include "search/test_search.h"

namespace braid::inline search {
namespace {

using testing::HasSubstr;

constexpr FurtherAxes kBoth = {true, true};

// Two long sequences for eight devices.
PlanningProblem long_sequences() {
  return make_test_problem({.algorithm = "grpo",
                            .actor = "qwen2.5-0.5b",
                            .gpu = "h100-80g",
                            .prompts = 1,
                            .samples = 2,
                            .minibatches = 1,
                            .prompt_tokens = 61440,
                            .response_tokens = 256});
}

// Whole experts fill the memory of these devices.
PlanningProblem many_experts() {
  return make_test_problem({.algorithm = "grpo",
                            .actor = "qwen3-30b-a3b",
                            .gpu = "h100-80g",
                            .prompts = 32,
                            .samples = 4,
                            .minibatches = 1,
                            .prompt_tokens = 512,
                            .response_tokens = 1024});
}

std::vector<Strategy> strategies(const PlanningProblem& problem, const char* call,
                                 const FurtherAxes& axes) {
  return strategies_of(problem, *find_call(problem.graph, call), 8, 8, axes);
}

TEST(FurtherAxes, LayoutsWithThemAreLegalAndBesideTheOthers) {
  for (const PlanningProblem& problem : {long_sequences(), many_experts()})
    for (const char* call : {"generate", "ref_logprob", "update_actor"}) {
      std::vector<Strategy> all = strategies(problem, call, kBoth);
      ExecutionPlan plan = uniform_plan(problem, 2, 1, 4);
      bool context = false, experts = false;
      for (const Strategy& strategy : all) {
        for (CallPlan& entry : plan.calls)
          if (entry.call == call) entry.strategy = strategy;
        EXPECT_EQ(validate(plan, problem).message(), "") << strategy_text(strategy);
        context |= strategy.cp > 1, experts |= strategy.ep > 1;
        EXPECT_EQ(axes_of(strategy).any(),
                  strategy.cp > 1 || strategy.ep > 1 || strategy.expert_tp > 0);
      }
      EXPECT_EQ(context, call != std::string("generate"));
      EXPECT_EQ(experts, model_of(problem, RoleId{"actor"}).spec.experts > 0);
      std::erase_if(all, [](const Strategy& s) { return axes_of(s).any(); });
      EXPECT_EQ(all, strategies(problem, call, {}));
    }
}

struct ProposedCase {
  PlanningProblem problem;
  CallPricer pricer;
  Judge judge;
  JudgedPlan proposed;
  explicit ProposedCase(PlanningProblem of)
      : problem(std::move(of)),
        pricer(*CallPricer::make(problem, committed_calibration())),
        judge(remembering(simulator_judge(problem, committed_calibration()))) {
    const auto found = searched_plan(problem, 2, 0, judge);
    BRAID_CHECK(found.ok(), found.status().message());
    EXPECT_EQ(found->units, 2);
    proposed = {found->plan, *found->verdict};
  }
  BeyondProposal propose(const FurtherAxes& axes, const PlanConstraints& kept = {}) {
    BeyondOptions options;
    options.space = *keeping(kept, {.margin = 0.05, .allowed = {}, .axes = axes});
    options.search.margin = 0.05;
    options.judge = judge;
    return *propose_beyond_train(problem, pricer, proposed, options);
  }
};

bool executed(const JudgedPlan& one, const PlanningProblem& problem) {
  return check_executable(one.plan, problem.graph).ok();
}

// What is said is a legal plan that fits, priced by the judge, and no call differs in vain.
void expect_sound(const BeyondProposal& proposal, ProposedCase& at) {
  ASSERT_TRUE(proposal.best);
  const JudgedPlan& best = *proposal.best;
  EXPECT_EQ(validate(best.plan, at.problem).message(), "");
  EXPECT_FALSE(executed(best, at.problem));
  EXPECT_TRUE(leaves(best.verdict, 0.05));
  EXPECT_EQ(at.judge(best.plan)->step_s, best.verdict.step_s);
  EXPECT_TRUE(compile(best.plan, at.problem).ok());
  for (size_t i = 0; i < best.plan.calls.size(); ++i) {
    ExecutionPlan nearer = best.plan;
    nearer.calls[i] = call_plan(at.proposed.plan, nearer.calls[i].call);
    const auto verdict = at.judge(nearer);
    if (nearer == best.plan || !verdict.ok() || !leaves(*verdict, 0.05)) continue;
    EXPECT_GT(verdict->step_s, best.verdict.step_s) << nearer.calls[i].call;
  }
}

TEST(BeyondTrain, FewLongSequencesShareTheirTokens) {
  ProposedCase at(long_sequences());
  EXPECT_TRUE(executed(at.proposed, at.problem));
  const FurtherAxes axes = further_axes(at.proposed.plan, at.problem);
  EXPECT_EQ(axes, (FurtherAxes{true, false}));
  const BeyondProposal proposal = at.propose(axes);
  expect_sound(proposal, at);
  EXPECT_TRUE(proposal.wins()) << proposal.best->verdict.step_s << " "
                               << at.proposed.verdict.step_s;
  const std::string text = beyond_text(proposal);
  EXPECT_THAT(text, HasSubstr("context parallelism: "));
  EXPECT_THAT(text, HasSubstr("  update_actor: cp: 1 -> "));
  EXPECT_EQ(beyond_json(proposal)["pays"], true);
  EXPECT_EQ(beyond_json(proposal)["step_s"], proposal.best->verdict.step_s);
}

TEST(BeyondTrain, ExpertsLieApart) {
  ProposedCase at(many_experts());
  EXPECT_TRUE(executed(at.proposed, at.problem));
  EXPECT_EQ(further_axes(at.proposed.plan, at.problem), kBoth);
  const BeyondProposal proposal = at.propose({false, true});
  expect_sound(proposal, at);
  EXPECT_TRUE(proposal.wins()) << proposal.best->verdict.step_s << " "
                               << at.proposed.verdict.step_s;
  const std::string text = beyond_text(proposal);
  EXPECT_THAT(text, HasSubstr("expert parallelism: "));
  EXPECT_THAT(text, HasSubstr(": ep: 1 -> "));
}

// Short sequences, of which each device has many: nothing is gained by sharing them.
TEST(BeyondTrain, SaysThatNothingIsGained) {
  ProposedCase at(make_test_problem(
      {.algorithm = "grpo", .actor = "qwen2.5-0.5b", .devices = 2, .prompts = 16, .samples = 4}));
  const BeyondProposal proposal = at.propose({true, false});
  EXPECT_FALSE(proposal.wins());
  EXPECT_THAT(beyond_text(proposal), HasSubstr("context parallelism: no plan with it saves 1 %"));
  EXPECT_EQ(beyond_json(proposal)["pays"], false);
}

TEST(BeyondTrain, KeepsWhatIsStated) {
  ProposedCase at(long_sequences());
  const PlanConstraints kept{{}, {}, {{"update_actor", {{"cp", 1}}}}};
  const BeyondProposal proposal = at.propose({true, false}, kept);
  ASSERT_TRUE(proposal.best);
  EXPECT_TRUE(satisfies(proposal.best->plan, kept).ok());
  EXPECT_GT(call_plan(proposal.best->plan, "ref_logprob").strategy.cp, 1);
  const auto fixed = [](const CallPlan& entry) { return entry.strategy.cp == 1; };
  EXPECT_EQ(further_axes(at.proposed.plan, at.problem, fixed), FurtherAxes());
}

// The bound of a search with them counts them: no edit of cp, ep, or of anything else, is below.
void expect_no_edit_below_with_axes(const NamedProblem& one, int edits) {
  const CallPricer pricer = *CallPricer::make(one.problem, committed_calibration());
  PlanSpace space =
      *make_plan_space(one.problem, pricer, {.margin = 0.05, .allowed = {}, .axes = kBoth});
  SearchOptions options;
  options.units.max_units = 24;
  options.units.threads = 2;
  options.margin = 0.05;
  const Judge judge = simulator_judge(one.problem, committed_calibration());
  const auto found = search_plans(space, options, judge);
  ASSERT_TRUE(found.ok()) << found.status().message();
  const double bound_s = static_cast<double>(found->lower_bound_us) / 1e6;
  EXPECT_GT(bound_s, 0);
  EXPECT_LE(bound_s, found->verdict->step_s * (1 + 1e-6));
  std::vector<ExecutionPlan> edited = single_edits(found->plan, one.problem, kBoth);
  for (int i = 0; i < edits; ++i) {
    RandomStream random(7, static_cast<uint64_t>(i));
    edited.push_back(random_edit(found->plan, one.problem, random));
  }
  int compared = 0, beyond = 0;
  for (const ExecutionPlan& plan : edited) {
    EXPECT_EQ(validate(plan, one.problem).message(), "");
    const Result<Verdict> verdict = judge(plan);
    if (!verdict.ok() || !verdict->fits) continue;
    EXPECT_GE(verdict->step_s, kProvenShare * bound_s) << one.name << "\n" << plan_to_yaml(plan);
    ++compared;
    beyond += check_executable(plan, one.problem.graph).ok() ? 0 : 1;
  }
  EXPECT_GT(compared, edits / 10) << one.name;
  EXPECT_GT(beyond, 0) << one.name;
}

TEST(PlanClaims, NoLegalEditIsBelowTheBoundWithContextParallelism) {
  expect_no_edit_below_with_axes({"few long sequences", long_sequences()}, full_tier() ? 500 : 40);
}

TEST(PlanClaims, NoLegalEditIsBelowTheBoundWithExpertParallelism) {
  expect_no_edit_below_with_axes({"many experts", many_experts()}, full_tier() ? 500 : 40);
}

TEST(PlanEdits, SizesOfContextAndExpertsAreEditedWhereTheyMayBe) {
  const PlanningProblem problem = many_experts();
  const ExecutionPlan plan = uniform_plan(problem, 4, 2, 1);
  const auto some = [&](const FurtherAxes& axes, int Strategy::*size) {
    const auto edits = single_edits(plan, problem, axes);
    return std::any_of(edits.begin(), edits.end(), [&](const ExecutionPlan& edited) {
      return call_plan(edited, "update_actor").strategy.*size !=
             call_plan(plan, "update_actor").strategy.*size;
    });
  };
  EXPECT_TRUE(some({true, false}, &Strategy::cp));
  EXPECT_FALSE(some({true, false}, &Strategy::ep));
  EXPECT_TRUE(some({false, true}, &Strategy::ep));
  EXPECT_TRUE(some({false, true}, &Strategy::expert_tp));
  EXPECT_FALSE(some({false, true}, &Strategy::cp));
  for (int Strategy::*const size : {&Strategy::cp, &Strategy::ep, &Strategy::expert_tp})
    EXPECT_FALSE(some({}, size));
}

}  // namespace
}  // namespace braid::inline search
