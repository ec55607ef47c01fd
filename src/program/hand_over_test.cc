// A generation that is handed over when few samples are left, and lists that say so.
#include "program/hand_over.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/rng.h"
#include "plan/execution_plan.h"
#include "plan/test_problem.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Progress of samples with these new tokens, negative where they have not finished.
std::vector<SampleProgress> progress_of(const std::vector<int64_t>& produced) {
  std::vector<SampleProgress> out;
  for (const int64_t tokens : produced) out.push_back({10, std::abs(tokens), tokens > 0});
  return out;
}

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
    const auto samples = progress_of(produced);
    const std::vector<SampleRows> owned = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}};
    const HandOver handed =
        hand_over(samples, owned, {static_cast<int64_t>(1 + random.below(6)), 0, 30});
    CallPlacement generate, scorer;
    for (int i = 0; i < 4; ++i) generate.mesh.devices.push_back(DeviceId{i});
    scorer.mesh = generate.mesh;
    generate.strategy.dp = 4;
    scorer.strategy.dp = 2, scorer.strategy.tp = 2;
    const std::vector<bool> free = free_ranks(scorer, generate, handed);
    for (int rank = 0; rank < 2; ++rank)
      EXPECT_EQ(free[rank], !handed.goes_on[2 * rank] && !handed.goes_on[2 * rank + 1]);
    std::vector<PartitionSample> partition;
    for (size_t i = 0; i < samples.size(); ++i)
      partition.push_back({SampleId{static_cast<int64_t>(i)}, GroupId{static_cast<int64_t>(i / 2)},
                           samples[i].prompt, samples[i].produced});
    Strategy strategy = scorer.strategy;
    strategy.micro_tokens = 60;
    const auto partition_of = [&](SamplePart part) {
      return partition_handed(partition, strategy, {}, free, handed, part);
    };
    const Partition finished = partition_of(SamplePart::kEarly);
    const Partition others = partition_of(SamplePart::kLate);
    SampleRows early, all;
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(free[rank] || finished.owned[rank].empty());
      for (const auto* partition : {&finished, &others}) {
        SampleRows passed;
        for (const SampleRows& batch : partition->minibatches[0].micro_batches[rank])
          passed.insert(passed.end(), batch.begin(), batch.end());
        std::sort(passed.begin(), passed.end());
        EXPECT_EQ(passed, partition->owned[rank]);
        all.insert(all.end(), passed.begin(), passed.end());
        if (partition == &finished) early.insert(early.end(), passed.begin(), passed.end());
      }
    }
    std::sort(early.begin(), early.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(early, free[0] || free[1] ? handed.early : SampleRows{});
    EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  }
}

ExecutionPlan plan_of(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, problem.cluster.nodes[0].devices, 1, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "values") call.strategy.dp /= 2, call.strategy.tp = 2;
  plan.fusion.migrate_below_samples = 8;
  return plan;
}

Program handed_over_program() {
  const PlanningProblem problem = make_test_problem({.devices = 4, .prompts = 32});
  auto program = compile(plan_of(problem), problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

TEST(HandOver, ListsHaveScorersBeforeAllSamplesAreThere) {
  const Program program = handed_over_program();
  std::vector<std::string> scorers;
  for (const CallId id : program.scoring.scorers)
    scorers.push_back(program.graph.calls[id.value].name);
  EXPECT_THAT(scorers, ElementsAre("old_logprob", "values", "ref_logprob"));
  std::vector<std::string> order;
  for (const Instruction& i : program.ranks[1].instructions)
    if (i.part != SamplePart::kAll && starts_call(i.kind))
      order.push_back(program.graph.calls[i.call.value].name + " " + part_name(i.part));
    else if (i.kind == OpKind::kHandOver)
      order.emplace_back("hand over");
  EXPECT_THAT(order, ElementsAre("generate early", "hand over", "generate late",
                                 "old_logprob early", "values early", "ref_logprob early",
                                 "old_logprob late", "values late", "ref_logprob late"));
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
  const size_t handed = place_of(whole, OpKind::kHandOver, SamplePart::kAll, "generate");
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
