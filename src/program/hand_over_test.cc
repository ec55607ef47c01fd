// A generation that is handed over when few samples are left, and lists that say so.
#include "program/hand_over.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/rng.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "program/hand_over_testing.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(HandOver, FewestSamplesMove) {
  // Replicas of four samples with 1, 3 and 2 left.
  const std::vector<SampleRows> owned = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
  const HandOver handed =
      hand_over(progress_of({5, -9, 5, 5, -3, -4, -5, 5, 5, -7, 5, -2}), owned, {8, 0, 20});
  EXPECT_THAT(handed.goes_on, ElementsAre(false, true, false));
  EXPECT_THAT(handed.moves,
              ElementsAre(SampleMove{1, 0, 1}, SampleMove{9, 2, 1}, SampleMove{11, 2, 1}));
  EXPECT_THAT(handed.left[1], ElementsAre(1, 4, 5, 6, 9, 11));
  EXPECT_THAT(handed.finished[0], ElementsAre(0, 2, 3));
  EXPECT_THAT(handed.early, ElementsAre(0, 2, 3, 7, 8, 10));
  EXPECT_THAT(handed.late, ElementsAre(1, 4, 5, 6, 9, 11));
}

// Of what moves the sample that is predicted to be the longest goes first, to who has least.
TEST(HandOver, PredictionsSayWhoHasTheMostLeft) {
  const std::vector<SampleRows> owned = {{0, 1}, {2, 3, 4}, {5, 6, 7}};
  std::vector<SampleProgress> samples = progress_of({-5, -9, -1, -1, -1, -1, -1, -4});
  const ReplicaLimits limits{4, 0, 50};
  EXPECT_THAT(hand_over(samples, owned, limits).moves,
              ElementsAre(SampleMove{0, 0, 1}, SampleMove{1, 0, 2}));
  for (SampleProgress& sample : samples) sample.predicted = 10;
  samples[1].predicted = 40;  // has 31 before it, the other 5
  EXPECT_THAT(hand_over(samples, owned, limits).moves,
              ElementsAre(SampleMove{0, 0, 2}, SampleMove{1, 0, 1}));
}

TEST(HandOver, AsManyGoOnAsHaveRoom) {
  const std::vector<SampleRows> owned = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}};
  const auto samples = progress_of({-1, -2, 9, -3, -4, 9, -5, 9, 9});
  const auto replicas_for = [&](const ReplicaLimits& limits) {
    const HandOver handed = hand_over(samples, owned, limits);
    return std::count(handed.goes_on.begin(), handed.goes_on.end(), true);
  };
  EXPECT_EQ(replicas_for({0, 0, 20}), 1);
  EXPECT_EQ(replicas_for({5, 0, 20}), 1);
  EXPECT_EQ(replicas_for({4, 0, 20}), 2);  // 5 samples
  EXPECT_EQ(replicas_for({2, 0, 20}), 3);
  EXPECT_EQ(replicas_for({1, 0, 20}), 3);    // there are no more
  EXPECT_EQ(replicas_for({0, 150, 20}), 1);  // 5 x (10 + 20) tokens
  EXPECT_EQ(replicas_for({0, 149, 20}), 2);
  EXPECT_EQ(going_on({0, 7, 8}, 9, 2).sequences, 5);
  EXPECT_EQ(going_on({4, 7, 8}, 9, 2).sequences, 4);
  EXPECT_EQ(going_on({4, 7, 8}, 9, 2, 3).sequences, 3);
  EXPECT_EQ(going_on({0, 7, 8}, 9, 2, 8).sequences, 8);
  const HandOver none = hand_over(progress_of({1, 2, 3, 4, 5, 6, 7, 8, 9}), owned, {});
  EXPECT_THAT(none.moves, IsEmpty());
  EXPECT_THAT(none.goes_on, ElementsAre(false, false, false));
}

TEST(HandOver, EverySampleIsPartitionedOnce) {
  RandomStream random(3, 0);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> produced;
    for (int i = 0; i < 12; ++i) {
      const auto tokens = static_cast<int64_t>(1 + random.below(30));
      produced.push_back(random.below(2) == 0 ? tokens : -tokens);
    }
    auto samples = progress_of(produced);
    const std::vector<SampleRows> owned = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}};
    const ReplicaLimits limits{static_cast<int64_t>(1 + random.below(6)), 0, 30};
    std::vector<HandOver> handed = {hand_over(samples, owned, limits)};
    for (const int32_t row : handed[0].late) samples[row].finished = random.below(2) == 0;
    handed.push_back(hand_over(samples, handed[0].left, limits, handed[0].goes_on));
    CallPlacement generate, scorer;
    for (int i = 0; i < 4; ++i) generate.mesh.devices.push_back(DeviceId{i});
    scorer.mesh = generate.mesh;
    generate.strategy.dp = 4;
    scorer.strategy.dp = 2, scorer.strategy.tp = 2;
    const FreeRanks free = free_ranks(scorer, generate, handed);
    std::vector<PartitionSample> partition;
    for (size_t i = 0; i < samples.size(); ++i)
      partition.push_back({SampleId{static_cast<int64_t>(i)}, GroupId{static_cast<int64_t>(i / 2)},
                           samples[i].prompt, samples[i].produced});
    Strategy strategy = scorer.strategy;
    strategy.micro_tokens = 60;
    SampleRows all;
    for (int number = 0; number < 3; ++number) {
      const auto part = static_cast<SamplePart>(number + 1);
      const Partition scored = partition_scored(partition, strategy, {}, free, handed, part);
      SampleRows of_part;
      for (int rank = 0; rank < 2; ++rank) {
        if (number < 2) {
          const std::vector<bool>& on = handed[number].goes_on;
          EXPECT_EQ(free[number][rank], !on[2 * rank] && !on[2 * rank + 1]);
          EXPECT_TRUE(free[number][rank] || scored.owned[rank].empty());
        }
        SampleRows passed;
        for (const SampleRows& batch : scored.minibatches[0].micro_batches[rank])
          passed.insert(passed.end(), batch.begin(), batch.end());
        std::sort(passed.begin(), passed.end());
        EXPECT_EQ(passed, scored.owned[rank]);
        of_part.insert(of_part.end(), passed.begin(), passed.end());
      }
      std::sort(of_part.begin(), of_part.end());
      all.insert(all.end(), of_part.begin(), of_part.end());
      if (number == 2) continue;
      const bool any = free[number][0] || free[number][1];
      EXPECT_EQ(of_part, any ? handed[number].early : SampleRows{});
    }
    std::sort(all.begin(), all.end());
    EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
    SampleRows generated;
    for (const SampleRows& rows : generated_rows(handed, SamplePart::kAll))
      generated.insert(generated.end(), rows.begin(), rows.end());
    std::sort(generated.begin(), generated.end());
    EXPECT_EQ(generated, all);
  }
}

// Those that are free by then stay free, also where they are as empty as one that goes on.
TEST(HandOver, AgainOfThoseThatWentOn) {
  const std::vector<SampleRows> owned = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  std::vector<SampleProgress> samples = progress_of({5, 5, -5, -5, -5, -5, -5, 5});
  const ReplicaLimits limits{2, 0, 50};
  const HandOver first = hand_over(samples, owned, limits);
  EXPECT_THAT(first.goes_on, ElementsAre(false, true, true, true));
  for (const int32_t row : {2, 3, 4}) samples[row].finished = true;
  const HandOver then = hand_over(samples, first.left, limits, first.goes_on);
  EXPECT_THAT(then.early, ElementsAre(2, 3, 4));
  EXPECT_THAT(then.late, ElementsAre(5, 6));
  EXPECT_THAT(then.goes_on, ElementsAre(false, false, true, false));
  EXPECT_THAT(then.moves, ElementsAre(SampleMove{6, 3, 2}));
  EXPECT_THAT(then.left[2], ElementsAre(5, 6));
}

ExecutionPlan plan_of(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, problem.cluster.nodes[0].devices, 1, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "values") call.strategy.dp /= 2, call.strategy.tp = 2;
  plan.fusion.migrate_below_samples = 8;
  return plan;
}

Program handed_over_program(const std::vector<int64_t>& again = {}) {
  const PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 32});
  ExecutionPlan plan = plan_of(problem);
  plan.fusion.migrate_again_below = again;
  auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

// What the list of a rank has of parts of calls, in order.
std::vector<std::string> parts_in(const Program& program) {
  std::vector<std::string> order;
  for (const Instruction& i : program.ranks[1].instructions)
    if (i.part != SamplePart::kAll && starts_call(i.kind))
      order.push_back(program.graph.calls[i.call.value].name + " " + part_name(i.part));
    else if (i.kind == OpKind::kHandOver)
      order.emplace_back("hand over");
  return order;
}

// Who is free scores while the others generate, until the generation is handed over again.
TEST(HandOver, ListsHandOverAgain) {
  const Program program = handed_over_program({3});
  EXPECT_TRUE(verify(program).ok()) << verify(program).message();
  EXPECT_THAT(parts_in(program),
              ElementsAre("generate early", "hand over", "generate late", "old_logprob early",
                          "values early", "ref_logprob early", "hand over", "generate part 3",
                          "old_logprob late", "values late", "ref_logprob late",
                          "old_logprob part 3", "values part 3", "ref_logprob part 3"));
  EXPECT_NE(program_hash(program), program_hash(handed_over_program()));
  EXPECT_NE(program_hash(program), program_hash(handed_over_program({2})));
  for (size_t rank = 0; rank < program.ranks.size(); ++rank)
    for (size_t at = 0; at < program.ranks[rank].instructions.size(); ++at) {
      if (program.ranks[rank].instructions[at].kind != OpKind::kHandOver) continue;
      Program other = program;
      other.ranks[rank].instructions[at].part = SamplePart::kAll;
      EXPECT_FALSE(verify(other).ok());
      other = program;
      other.scoring.again.push_back(1);
      EXPECT_FALSE(verify(other).ok());
    }
}

// Until it is handed over all ranks of the generation count; later no list knows who does.
TEST(HandOver, ListsCountAmongThoseThatGenerate) {
  const Program program = handed_over_program({3});
  int counts = 0;
  for (const Instruction& i : program.ranks[1].instructions) {
    if (i.kind != OpKind::kTally) continue;
    ++counts;
    EXPECT_EQ(i.detail >= 0, i.part == SamplePart::kEarly);
    EXPECT_TRUE(i.detail < 0 || program.groups[i.detail].members.size() == 4u);
  }
  EXPECT_EQ(counts, 2);
  EXPECT_THAT(program_text(program), HasSubstr("late samples by messages of those that went on"));
  Program together = program;
  for (size_t at = 0; at < together.groups.size(); ++at) {
    for (RankProgram& rank : together.ranks)
      for (Instruction& i : rank.instructions)
        if (i.kind == OpKind::kTally && i.part != SamplePart::kEarly)
          i.detail = static_cast<int32_t>(at);
    EXPECT_FALSE(verify(together).ok());
  }
}

// What has not been told yet is asked of nobody.
TEST(HandOverDeathTest, APartBehindTheKnownHandOvers) {
  const std::vector<SampleRows> owned = {{0, 1}, {2, 3}};
  const HandOver handed = hand_over(progress_of({5, -5, -5, 5}), owned, {2, 0, 50});
  EXPECT_EQ(generated_rows({handed}, SamplePart::kLate), handed.left);
  EXPECT_DEATH(generated_rows({handed}, static_cast<SamplePart>(3)), "there were 1");
}

TEST(HandOver, ListsHaveScorersBeforeAllSamplesAreThere) {
  const Program program = handed_over_program();
  std::vector<std::string> scorers;
  for (const CallId id : program.scoring.scorers)
    scorers.push_back(program.graph.calls[id.value].name);
  EXPECT_THAT(scorers, ElementsAre("old_logprob", "values", "ref_logprob"));
  EXPECT_THAT(parts_in(program),
              ElementsAre("generate early", "hand over", "generate late", "old_logprob early",
                          "values early", "ref_logprob early", "old_logprob late", "values late",
                          "ref_logprob late"));
  EXPECT_THAT(program_text(program), HasSubstr("until few_left, early samples"));
  EXPECT_NE(program_hash(program), program_hash(*compile(program.graph)));
}

// An instruction of a rank, of a kind and part.
size_t place_of(const Program& program, OpKind kind, SamplePart part, const std::string& call) {
  const auto& list = program.ranks[0].instructions;
  const auto found = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.kind == kind && i.part == part && program.graph.calls[i.call.value].name == call;
  });
  EXPECT_NE(found, list.end());
  return found - list.begin();
}

TEST(HandOver, FaultyListsAreRefused) {
  const Program whole = handed_over_program();
  ASSERT_TRUE(verify(whole).ok()) << verify(whole).message();
  const size_t handed = place_of(whole, OpKind::kHandOver, SamplePart::kEarly, "generate");
  const size_t tally = place_of(whole, OpKind::kTally, SamplePart::kEarly, "generate");
  const size_t scores = place_of(whole, OpKind::kCall, SamplePart::kEarly, "ref_logprob");
  const size_t late = place_of(whole, OpKind::kRegionBegin, SamplePart::kLate, "generate");
  const auto message = [&](const std::function<void(std::vector<Instruction>*)>& change) {
    Program other = whole;
    change(&other.ranks[0].instructions);
    return verify(other).message();
  };
  const auto not_waiting = [&](size_t at, size_t before) {
    return message([&](std::vector<Instruction>* list) {
      std::erase((*list)[at].after, InstructionId{static_cast<int32_t>(before)});
    });
  };
  EXPECT_THAT(not_waiting(scores, handed), HasSubstr("which says what has finished"));
  EXPECT_THAT(not_waiting(late, handed), HasSubstr("which says what has finished"));
  EXPECT_THAT(not_waiting(handed, handed - 1), HasSubstr("after which few samples are left"));
  EXPECT_THAT(message([&](auto* list) { (*list)[tally].detail = -1; }),
              HasSubstr("is not among the ranks that it should be"));
  EXPECT_THAT(message([&](auto* list) { (*list)[tally].kind = OpKind::kAgree; }),
              HasSubstr("twice"));
  EXPECT_THAT(message([&](auto* list) { (*list)[scores].part = SamplePart::kAll; }),
              HasSubstr("occurs twice or does not belong here"));
  EXPECT_THAT(message([&](auto* list) { (*list)[handed].kind = OpKind::kRelease; }),
              testing::Not(IsEmpty()));
  EXPECT_THAT(message([&](auto* list) { std::swap((*list)[scores], (*list)[scores + 1]); }),
              testing::Not(IsEmpty()));
}

TEST(PredictedLengths, ProgramsThatCannotAreRefused) {
  const PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 32});
  ExecutionPlan plan = plan_of(problem);
  const std::string in_order = program_hash(*compile(plan, problem));
  plan.fusion.predicted_lengths = true;
  auto program = compile(plan, problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_NE(program_hash(*program), in_order);
  for (CallPlacement& call : program->calls) call.strategy.dp = 1;
  EXPECT_THAT(verify(*program).message(), HasSubstr("no generation has several replicas"));
  plan.staleness = 1;
  EXPECT_FALSE(compile(plan, problem).ok());
}

TEST(HandOver, PlansThatCannotAreRefused) {
  const auto refusal = [](const TestProblem& test,
                          const std::function<void(ExecutionPlan*)>& change) {
    const PlanningProblem problem = make_test_problem(test);
    ExecutionPlan plan = plan_of(problem);
    change(&plan);
    return compile(plan, problem).status().message();
  };
  const TestProblem four{.devices = 4, .prompts = 32};
  EXPECT_EQ(refusal(four, [](ExecutionPlan*) {}), "");
  EXPECT_THAT(
      refusal(four,
              [](auto* plan) { plan->calls[0].strategy.dp = 1, plan->calls[0].strategy.tp = 4; }),
      HasSubstr("call generate has dp 1"));
  EXPECT_THAT(refusal(four, [](auto* plan) { plan->fusion.migrate_below_samples = -2; }),
              HasSubstr("must not be negative"));
  EXPECT_THAT(
      refusal(four, [](auto* plan) { plan->fusion.migrate_below_samples = kAutoMigration; }),
      HasSubstr("nobody has chosen a number"));
  const auto again = [&](const std::vector<int64_t>& numbers, int64_t below = 8) {
    return refusal(four, [&](auto* plan) {
      plan->fusion.migrate_below_samples = below, plan->fusion.migrate_again_below = numbers;
    });
  };
  EXPECT_EQ(again({4, 1}), "");
  EXPECT_THAT(again({8}), HasSubstr("8 does not come behind 8; state the largest number first"));
  EXPECT_THAT(again({4, 5}), HasSubstr("5 does not come behind 4"));
  EXPECT_THAT(again({0}), HasSubstr("0 does not come behind 8"));
  EXPECT_THAT(again({4}, kAutoMigration), HasSubstr("auto is one number"));
  EXPECT_THAT(again({4}, 0), HasSubstr("migrate_below_samples is 0"));
  EXPECT_THAT(again({9, 8, 7, 6, 5, 4, 3, 2}, 10), HasSubstr("state at most 8"));
  TestProblem draws = four;
  draws.algorithm = "grpo", draws.samples = 4, draws.dynamic_sampling = true;
  EXPECT_THAT(refusal(draws, [](ExecutionPlan*) {}), HasSubstr("drawn again"));
  EXPECT_THAT(refusal(four,
                      [](auto* plan) {
                        for (CallPlan& call : plan->calls)
                          if (call.call != "generate") call.strategy.zero_stage = 3;
                      }),
              HasSubstr("no call can score samples before all are there"));
}

}  // namespace
}  // namespace braid::inline program
