// Which tokens of which samples are scored ahead of the others, and what is left of them.
#include "program/scored_prefixes.h"

#include <gtest/gtest.h>

#include "base/contains.h"
#include "plan/test_problem.h"
#include "program/call_parts.h"

namespace braid::inline program {
namespace {

using Tokens = std::vector<int64_t>;

// The second of two replicas goes on with rows 1 and 3 of four.
std::vector<HandOver> handed_over() {
  HandOver out;
  out.goes_on = {false, true};
  out.early = {0, 2}, out.late = {1, 3};
  out.produced = {12, 0};
  out.left = {{}, {1, 3}};
  return {out};
}

std::vector<PartitionSample> four_samples() {
  std::vector<PartitionSample> out;
  for (const int64_t response : {3, 20, 4, 9})
    out.push_back({SampleId{std::ssize(out)}, GroupId{0}, 7, response});
  return out;
}

class ScoredPrefixesTest : public testing::Test {
 protected:
  ScoredPrefixesTest() {
    plan_ = uniform_plan(problem_, 2, 1, 1);
    plan_.fusion.migrate_below_samples = 2;
    plan_.fusion.scored_prefixes = true;
  }
  Program compiled() const {
    auto program = compile(plan_, problem_);
    EXPECT_TRUE(program.ok()) << program.status().message();
    return *std::move(program);
  }

  PlanningProblem problem_ = make_test_problem({.devices = 2});
  ExecutionPlan plan_;
};

TEST_F(ScoredPrefixesTest, AreWhatThereWasOfEachSample) {
  const Program program = compiled();
  for (const CallId scorer : program.scoring.scorers) {
    ASSERT_TRUE(scores_beginnings(program, scorer));
    EXPECT_EQ(prefixes_scored(program, scorer, four_samples(), handed_over()),
              (Tokens{0, 18, 0, 6}));
    std::vector<HandOver> none_free = handed_over();
    none_free.front().goes_on = {true, true};
    EXPECT_EQ(prefixes_scored(program, scorer, four_samples(), none_free), Tokens());
  }
  ASSERT_FALSE(program.scoring.scorers.empty());
}

// Beginning and rest are the sample, and a row of the rest sees all before it.
TEST_F(ScoredPrefixesTest, CutEachSampleOnce) {
  const Tokens prefixes = {0, 18, 0, 6};
  const auto whole = four_samples();
  const auto begun = samples_of_part(whole, prefixes, PrefixPart::kBeginnings),
             rest = samples_of_part(whole, prefixes, PrefixPart::kRest);
  for (size_t row : {1, 3}) {
    EXPECT_EQ(begun[row].prompt + begun[row].response, prefixes[row]);
    EXPECT_EQ(begun[row].prompt + begun[row].response + rest[row].prompt + rest[row].response,
              whole[row].prompt + whole[row].response);
  }
  EXPECT_EQ(begun[0], whole[0]);
  EXPECT_EQ(samples_of_part(whole, prefixes, PrefixPart::kNone), whole);
  std::vector<PackedLength> lengths = packed_lengths({3, 1}, rest, false);
  add_prefixes({3, 1}, prefixes, &lengths);
  EXPECT_EQ(lengths, (std::vector<PackedLength>{{16, 6}, {27, 18}}));
  EXPECT_TRUE(is_cached({1, 3}, prefixes));
  EXPECT_FALSE(is_cached({0, 2}, prefixes));
}

// The free rank has all of it, and owns what is left in the last part alone.
TEST_F(ScoredPrefixesTest, TheRankWithABeginningHasTheRest) {
  const Program program = compiled();
  const CallId scorer = program.scoring.scorers.front();
  StepParts step;
  step.handed = handed_over();
  const auto samples = four_samples();
  const auto part = [&](SamplePart which) {
    return partition_part(program, {scorer, samples, program.calls[scorer.value].strategy, {}},
                          which, step);
  };
  using Shares = std::vector<SampleRows>;
  const Partition first = part(SamplePart::kEarly), last = part(SamplePart::kLate);
  EXPECT_EQ(first.owned, (Shares{{0, 2}, {}}));
  EXPECT_EQ(first.begun, (Shares{{1, 3}, {}}));
  EXPECT_EQ(first.minibatches.front().rows, (SampleRows{0, 2}));
  EXPECT_EQ(rows_read(first), (Shares{{0, 1, 2, 3}, {}}));
  EXPECT_EQ(last.owned, (Shares{{1, 3}, {}}));
  EXPECT_TRUE(last.begun.empty());
  int64_t tokens = 0;
  for (const Partition& each : {first, last})
    for (const int64_t of_batch : each.minibatches.front().tokens[0]) tokens += of_batch;
  EXPECT_EQ(tokens, 4 * 7 + 3 + 20 + 4 + 9);

  // Row 1 is dropped, and the others have new numbers.
  step.given[{scorer, SamplePart::kLate}] = last.owned;
  step = retained(step, {true, false, true, true});
  EXPECT_EQ(step.handed.back().late, (SampleRows{2}));
  EXPECT_EQ(step.handed.back().produced, Tokens{0});
  const std::vector<PartitionSample> kept = {samples[0], samples[2], samples[3]};
  const Partition rest = partition_part(
      program, {scorer, kept, program.calls[scorer.value].strategy, {}}, SamplePart::kLate, step);
  EXPECT_EQ(rest.owned, (Shares{{2}, {}}));
  EXPECT_EQ(rest.minibatches.front().tokens[0], Tokens{16 - 6});
}

// Where no rank had a beginning, ranks keep what they were given of whole samples.
TEST_F(ScoredPrefixesTest, WholeSamplesStayWhereTheyWereGiven) {
  const Program program = compiled();
  const CallId scorer = program.scoring.scorers.front();
  StepParts step;
  step.handed = handed_over();
  step.handed.front().goes_on = {true, true};
  const std::vector<SampleRows> given = {{1}, {0, 2, 3}};
  step.given[{scorer, SamplePart::kLate}] = given;
  const auto samples = four_samples();
  const Partition last =
      partition_part(program, {scorer, samples, program.calls[scorer.value].strategy, {}},
                     SamplePart::kLate, step);
  EXPECT_EQ(last.owned, given);
}

// Also of a sample of which nothing is there, whose response is not known at the hand-over; and
// micro-batches of the rest are no larger than those of whole samples.
TEST_F(ScoredPrefixesTest, WhoHasABeginningDoesNotDependOnWhatComes) {
  problem_ = make_test_problem({.devices = 3});
  plan_ = uniform_plan(problem_, 3, 1, 1);
  plan_.fusion.migrate_below_samples = 4, plan_.fusion.scored_prefixes = true;
  for (CallPlan& entry : plan_.calls)
    if (entry.call != "generate") entry.strategy.micro_tokens = 60;
  const Program program = compiled();
  const CallId scorer = program.scoring.scorers.front();
  StepParts step;
  HandOver& handed = step.handed.emplace_back();
  handed.goes_on = {false, false, true};
  handed.late = {0, 1, 2, 3, 4}, handed.produced = {12, 0, 3, 5, 9};
  handed.left = {{}, {}, {0, 1, 2, 3, 4}};
  const auto part = [&](SamplePart which, const std::vector<int64_t>& responses) {
    std::vector<PartitionSample> samples;
    for (const int64_t response : responses) {
      const auto row = std::ssize(samples);
      samples.push_back({SampleId{row}, GroupId{row}, row == 1 ? 1 : 7, response});
    }
    return partition_part(program, {scorer, samples, program.calls[scorer.value].strategy, {}},
                          which, step);
  };
  const Partition begun = part(SamplePart::kEarly, {0, 0, 0, 0, 0});
  const Partition rest = part(SamplePart::kLate, {50, 900, 40, 45, 48});
  EXPECT_EQ(begun.begun, rest.owned);
  SampleRows all;
  for (const SampleRows& rows : rest.owned) all.insert(all.end(), rows.begin(), rows.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (SampleRows{0, 1, 2, 3, 4}));
  for (const auto& of_rank : begun.minibatches.front().micro_batches)
    for (const SampleRows& rows : of_rank) EXPECT_FALSE(contains(rows, 1));
  for (const auto& of_rank : rest.minibatches.front().micro_batches)
    for (const SampleRows& rows : of_rank) EXPECT_EQ(rows.size(), 1u);
}

TEST_F(ScoredPrefixesTest, TheListSaysWhatBringsThem) {
  Program program = compiled();
  int brought = 0;
  for (Exchange& exchange : program.exchanges)
    if (contains(exchange.fields, kBegunIds)) {
      ++brought;
      EXPECT_EQ(exchange.producer, program.scoring.generate);
      EXPECT_EQ(exchange.part, SamplePart::kEarly);
    }
  EXPECT_EQ(brought, std::ssize(program.scoring.scorers));
  EXPECT_TRUE(verify(program).ok());
  Program lacks = program;
  for (Exchange& exchange : lacks.exchanges) std::erase(exchange.fields, kBegunIds);
  EXPECT_NE(verify(lacks).message().find("no exchange brings begun_ids"), std::string::npos)
      << verify(lacks).message();
  Program more = program;
  for (Exchange& exchange : more.exchanges)
    if (exchange.producer == program.scoring.generate && exchange.part != SamplePart::kEarly)
      exchange.fields.emplace_back(kBegunIds);
  EXPECT_NE(verify(more).message().find("nobody takes begun_ids"), std::string::npos)
      << verify(more).message();
}

TEST_F(ScoredPrefixesTest, NeedACallThatCan) {
  const auto expect_refused = [&](const std::string& why) {
    const std::string said = compile(plan_, problem_).status().message();
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  plan_.fusion.migrate_below_samples = 0;
  expect_refused(
      "fusion: migrate_to_samples, migrate_cache, pre_copy_below_samples and scored_prefixes say");
  problem_ = make_test_problem({.devices = 4});
  plan_ = uniform_plan(problem_, 2, 2, 1);
  plan_.fusion.migrate_below_samples = 2;
  plan_.fusion.scored_prefixes = true;
  EXPECT_TRUE(compile(plan_, problem_).ok());
  for (CallPlan& entry : plan_.calls) entry.strategy.sequence_parallel = entry.call != "generate";
  expect_refused("fusion.scored_prefixes: no call can score the beginnings of samples");
}

}  // namespace
}  // namespace braid::inline program
