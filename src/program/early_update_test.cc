// Updates that begin while the samples of their later mini-batches are still scored.
#include "program/early_update.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "program/call_parts.h"
#include "program/early_update_testing.h"

namespace braid::inline program {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PlanningProblem early_problem(const std::string& algorithm) {
  return make_test_problem({.algorithm = algorithm,
                            .devices = 4,
                            .prompts = 16,
                            .samples = algorithm == "ppo" ? 1 : 2,
                            .minibatches = 4});
}

// The update and the trainer's log-probs on the first two devices, all else on the others.
ExecutionPlan early_plan(const PlanningProblem& problem) {
  return in_halves(problem, {"update_actor", "old_logprob"}, 1);
}

Program early_program() {
  const PlanningProblem problem = early_problem("grpo");
  auto program = compile(early_plan(problem), problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *program;
}

// What a rank begins, and what it exchanges of the reference's log-probs.
std::vector<std::string> parts_in_order(const Program& program, size_t rank) {
  std::vector<std::string> out;
  for (const Instruction& i : program.ranks[rank].instructions) {
    if (i.kind == OpKind::kExchange && program.exchanges[i.detail].part != SamplePart::kAll)
      out.push_back(cat("exchange ", part_name(program.exchanges[i.detail].part)));
    if (starts_call(i.kind) && i.part != SamplePart::kAll)
      out.push_back(cat(program.graph.calls[i.call.value].name, " ", part_name(i.part)));
    if (i.kind == OpKind::kShare)
      out.push_back(
          cat("share ", program.graph.calls[program.exchanges[i.detail].producer.value].name));
  }
  return out;
}

TEST(EarlyUpdate, BeginsBeforeAllIsScored) {
  const Program program = early_program();
  ASSERT_TRUE(program.early_update.is_on());
  EXPECT_EQ(program.graph.calls[program.early_update.update.value].name, "update_actor");
  ASSERT_EQ(program.early_update.scorers.size(), 1u);
  EXPECT_THAT(parts_in_order(program, 0),
              ElementsAre("share fetch", "share generate", "share reward", "exchange early",
                          "share advantages", "exchange late", "exchange part 3", "exchange part 4",
                          "update_actor early", "update_actor late", "update_actor part 3",
                          "update_actor part 4"));
  EXPECT_THAT(parts_in_order(program, 3),
              ElementsAre("share fetch", "share generate", "ref_logprob early", "share reward",
                          "exchange early", "share advantages", "ref_logprob late", "exchange late",
                          "ref_logprob part 3", "exchange part 3", "ref_logprob part 4",
                          "exchange part 4"));
  EXPECT_THAT(program_text(program), HasSubstr("until minibatches_done, part 3 of 4"));
  const PlanningProblem problem = early_problem("grpo");
  ExecutionPlan plan = early_plan(problem);
  plan.fusion.train_beside_scoring = 0;
  EXPECT_NE(program_hash(program), program_hash(*compile(plan, problem)));
}

size_t place_of_part(const Program& program, size_t rank, OpKind kind, SamplePart part) {
  const auto& list = program.ranks[rank].instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool moves = list[i].kind == OpKind::kExchange;
    if (list[i].kind == kind &&
        (moves ? program.exchanges[list[i].detail].part : list[i].part) == part)
      return i;
  }
  ADD_FAILURE() << "no " << op_kind_name(kind) << " of the part";
  return 0;
}

TEST(EarlyUpdate, FaultyListsAreRefused) {
  const Program whole = early_program();
  ASSERT_TRUE(verify(whole).ok()) << verify(whole).message();
  const auto not_waiting = [&](size_t rank, size_t at, size_t before) {
    Program other = whole;
    auto& after = other.ranks[rank].instructions[at].after;
    EXPECT_GT(std::erase(after, InstructionId{static_cast<int32_t>(before)}), 0u);
    return verify(other).message();
  };
  const auto of_update = [&](OpKind kind, SamplePart part) {
    return place_of_part(whole, 0, kind, part);
  };
  for (const SamplePart part : {SamplePart::kEarly, SamplePart::kLate}) {
    EXPECT_THAT(
        not_waiting(0, of_update(OpKind::kRegionBegin, part), of_update(OpKind::kExchange, part)),
        HasSubstr("without waiting for its exchange"));
    EXPECT_THAT(not_waiting(3, place_of_part(whole, 3, OpKind::kExchange, part),
                            place_of_part(whole, 3, OpKind::kCall, part)),
                HasSubstr("which makes what it moves"));
  }
  Program other = whole;
  for (Exchange& exchange : other.exchanges)
    if (exchange.part == SamplePart::kLate) exchange.part = SamplePart::kAll;
  EXPECT_THAT(verify(other).message(), HasSubstr("is of a part of the samples"));
  other = whole;
  std::swap(
      other.ranks[3].instructions[place_of_part(whole, 3, OpKind::kCall, SamplePart::kEarly)].part,
      other.ranks[3].instructions[place_of_part(whole, 3, OpKind::kCall, SamplePart::kLate)].part);
  EXPECT_THAT(verify(other).message(),
              HasSubstr("comes before the samples that its call has first"));
  other = whole;
  other.early_update.scorers.clear();
  EXPECT_THAT(verify(other).message(), testing::Not(IsEmpty()));
}

// The scorers are on the devices of a generation that is handed over at these numbers.
ExecutionPlan handed_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = in_halves(problem, {"update_actor"}, 1);
  plan.fusion.migrate_below_samples = 12;
  plan.fusion.migrate_again_below = {5};
  return plan;
}

CallId call_of(const Program& program, const std::string& name) {
  for (int32_t i = 0; i < std::ssize(program.graph.calls); ++i)
    if (program.graph.calls[i].name == name) return CallId{i};
  ADD_FAILURE() << "no " << name;
  return CallId{-1};
}

// What has finished is scored first, the rest in the order of the update.
TEST(EarlyUpdate, BeginsBehindAGenerationThatIsHandedOver) {
  const PlanningProblem problem = early_problem("grpo");
  const auto compiled = compile(handed_plan(problem), problem);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  std::vector<std::string> begun;
  for (const std::string& at : parts_in_order(*compiled, 3))
    if (!at.starts_with("exchange") && !at.starts_with("old_logprob")) begun.push_back(at);
  EXPECT_THAT(begun,
              ElementsAre("share fetch", "generate early", "generate late", "ref_logprob early",
                          "generate part 3", "ref_logprob late", "share generate",
                          "ref_logprob part 3", "share reward", "share advantages",
                          "ref_logprob part 4", "ref_logprob part 5", "ref_logprob part 6"));
  EXPECT_THAT(program_text(*compiled), HasSubstr("part 6 of 6"));
  EXPECT_THAT(program_text(*compiled), HasSubstr("until few_left, late samples"));
  // The first scores that go to the update are all that there are by then.
  Program other = *compiled;
  const CallId scorer = call_of(other, "ref_logprob");
  auto& list = other.ranks[3].instructions;
  const auto scored = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.call == scorer && i.part == static_cast<SamplePart>(3);
  });
  const auto sent = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.kind == OpKind::kExchange && other.exchanges[i.detail].producer == scorer;
  });
  ASSERT_LT(scored, sent);
  EXPECT_GT(std::erase(sent->after, InstructionId{static_cast<int32_t>(scored - list.begin())}),
            0u);
  EXPECT_THAT(verify(other).message(), HasSubstr("which makes what it moves"));
}

// Whatever had finished when: every sample is scored once, before the part of the update that
// learns from it.
TEST(EarlyUpdate, PartsBehindHandOversAreAWhole) {
  const PlanningProblem problem = early_problem("grpo");
  const auto compiled = compile(handed_plan(problem), problem);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  const Program& program = *compiled;
  const CallId update = program.early_update.update, scorer = call_of(program, "ref_logprob");
  const CallPlacement& generate = program.calls[program.scoring.generate.value];
  std::vector<PartitionSample> samples;
  std::vector<SampleProgress> progress, later;
  for (int32_t i = 0; i < 32; ++i) {
    const int64_t length = 1 + (i * 11) % 32;
    samples.push_back({SampleId{i}, GroupId{i / 2}, 5, length});
    progress.push_back({5, length, length < 20, 0});
    later.push_back({5, length, length < 28, 0});
  }
  StepParts step;
  step.handed.push_back(hand_over(progress, partition_requests(32, generate.strategy), {}));
  step.handed.push_back(
      hand_over(later, step.handed[0].left, {}, std::vector<bool>(step.handed[0].goes_on)));
  const PartitionOptions learns{.trains = true, .seed = 3, .minibatches = 4}, scores;
  const PartitionedCall learning{update, samples, program.calls[update.value].strategy, learns};
  const PartitionedCall scoring{scorer, samples, program.calls[scorer.value].strategy, scores};
  step.scored = scored_in_parts(program, learning, 32);
  std::vector<int> times(32, 0);
  for (const SamplePart part : parts_of_call(program, update)) {
    for (const SamplePart each : parts_scored_for(program, scorer, part))
      for (const SampleRows& owned : partition_part(program, scoring, each, step).owned)
        for (const int32_t row : owned) ++times[row];
    for (const SampleRows& owned : partition_part(program, learning, part, step).owned)
      for (const int32_t row : owned) EXPECT_EQ(times[row], 1) << row;
    for (const HandOver& handed : step.handed)
      for (const int32_t row : handed.early) EXPECT_EQ(times[row], 1) << row;
  }
  EXPECT_THAT(times, testing::Each(1));
}

TEST(EarlyUpdate, PlansThatCannotAreRefused) {
  const auto refusal = [](const std::string& algorithm,
                          const std::function<void(ExecutionPlan*)>& change,
                          const PlanningProblem* of = nullptr) {
    const PlanningProblem problem = of != nullptr ? *of : early_problem(algorithm);
    ExecutionPlan plan = early_plan(problem);
    change(&plan);
    return compile(plan, problem).status().message();
  };
  const auto none = [](ExecutionPlan*) {};
  EXPECT_EQ(refusal("grpo", none), "");
  EXPECT_THAT(refusal("ppo", none),
              HasSubstr("ref_logprob is read by advantages, which looks at all samples"));
  EXPECT_THAT(refusal("grpo",
                      [](auto* plan) {
                        for (CallPlan& call : plan->calls)
                          if (call.call == "update_actor")
                            call.mesh.devices = {DeviceId{0}, DeviceId{1}, DeviceId{2},
                                                 DeviceId{3}},
                            call.strategy.dp = 4;
                      }),
              HasSubstr("ref_logprob shares devices with update_actor"));
  EXPECT_THAT(refusal("grpo", [](auto* plan) { plan->fusion.train_beside_scoring = 4; }),
              HasSubstr("an epoch has 4 (train.minibatches)"));
  EXPECT_THAT(refusal("grpo", [](auto* plan) { plan->fusion.train_beside_scoring = -1; }),
              HasSubstr("must not be negative"));
  EXPECT_THAT(refusal("grpo", [](auto* plan) { plan->staleness = 1; }),
              HasSubstr("is not available with staleness"));
  const PlanningProblem draws = make_test_problem(
      {.algorithm = "grpo", .devices = 4, .prompts = 16, .samples = 2, .dynamic_sampling = true});
  EXPECT_THAT(refusal("grpo", none, &draws), HasSubstr("fusion.train_beside_scoring: groups that"));
}

// Every sample is scored once, those of the first mini-batches first; every mini-batch is learnt
// from once.
TEST(EarlyUpdate, PartsAreAWhole) {
  std::vector<PartitionSample> samples;
  for (int32_t i = 0; i < 23; ++i)
    samples.push_back({SampleId{i}, GroupId{i / 2}, 5 + i % 3, 7 + (i * 11) % 17});
  PartitionOptions options;
  options.trains = true, options.minibatches = 4, options.epochs = 2, options.seed = 3;
  Strategy strategy;
  strategy.dp = 2, strategy.micro_tokens = 60;
  const Partition whole = partition_samples(samples, strategy, options);
  for (const int64_t at_a_time : {1, 2, 3}) {
    EarlyUpdate early{CallId{0}, {}, at_a_time, (4 + at_a_time - 1) / at_a_time};
    const auto rows =
        scored_in_parts(partition_minibatches(samples, options), early, std::ssize(samples));
    std::vector<MiniBatch> learnt;
    std::vector<int> times(samples.size(), 0);
    SampleRows so_far;
    for (int64_t part = 1; part <= early.parts; ++part) {
      so_far.insert(so_far.end(), rows[part - 1].begin(), rows[part - 1].end());
      const Partition of_part = part_of_update(whole, early, static_cast<SamplePart>(part));
      learnt.insert(learnt.end(), of_part.minibatches.begin(), of_part.minibatches.end());
      for (const SampleRows& owned : of_part.owned)
        for (const int32_t row : owned) EXPECT_THAT(so_far, testing::Contains(row));
      PartitionOptions scores = options;
      scores.trains = false;
      for (const SampleRows& owned :
           partition_rows(samples, rows[part - 1], strategy, scores).owned)
        for (const int32_t row : owned) ++times[row];
    }
    EXPECT_EQ(learnt, whole.minibatches);
    EXPECT_THAT(times, testing::Each(1));
  }
}

}  // namespace
}  // namespace braid::inline program
