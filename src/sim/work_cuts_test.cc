#include "sim/work_cuts.h"

#include <gmock/gmock.h>

#include <numeric>

#include "base/rng.h"
#include "cost/efficiency.h"
#include "plan/test_problem.h"

namespace braid {
namespace {

using testing::ElementsAre;

int64_t sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

Strategy ranks(int dp, bool in_order) {
  Strategy s;
  s.dp = dp, s.in_order = in_order;
  return s;
}

SampleLengths long_tailed(int64_t samples) {
  SampleLengths out;
  for (int64_t i = 0; i < samples; ++i) {
    out.prompt.push_back(100);
    out.response.push_back(
        std::llround(100 * std::exp(random_normal(3, 0, static_cast<uint64_t>(i)))) + 1);
  }
  return out;
}

TEST(WorkCuts, LargestFirstToTheBinThatHoldsLeast) {
  EXPECT_THAT(deal_evenly({5, 1, 4, 2}, {2, 2}), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(deal_evenly({9, 1, 1}, {1, 2}), ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
  EXPECT_THAT(deal_evenly({}, {0}), ElementsAre(ElementsAre()));
}

TEST(WorkCuts, RanksShareEveryMinibatchOnceAndBalanceItsTokens) {
  const SampleLengths lengths = long_tailed(256);
  constexpr int kRanks = 8;
  constexpr int64_t kParts = 4;
  int64_t fullest[2] = {0, 0};
  for (const bool in_order : {false, true}) {
    WorkCuts cuts;
    for (int64_t part = 0; part < kParts; ++part) {
      std::vector<int64_t> all, expected;
      for (int rank = 0; rank < kRanks; ++rank) {
        const auto& mine = cuts.share(lengths, ranks(kRanks, in_order), 256, {rank, part, kParts});
        EXPECT_EQ(mine.size(), 256U / kRanks / kParts);
        fullest[in_order] = std::max(fullest[in_order], sum(mine));
        all.insert(all.end(), mine.begin(), mine.end());
        for (int64_t i = 0; i < 8; ++i) {
          const int64_t sample = rank * 32 + part * 8 + i;
          expected.push_back(lengths.prompt[sample] + lengths.response[sample]);
        }
      }
      EXPECT_THAT(all, testing::UnorderedElementsAreArray(expected));
    }
  }
  int64_t total = 0;
  for (size_t i = 0; i < 256; ++i) total += lengths.prompt[i] + lengths.response[i];
  EXPECT_GT(fullest[1], total * 14 / 10 / kRanks / kParts);
  EXPECT_LT(fullest[0], fullest[1] * 8 / 10);
}

TEST(WorkCuts, OneRankKeepsItsOrder) {
  const SampleLengths lengths = long_tailed(12);
  WorkCuts cuts;
  EXPECT_EQ(cuts.share(lengths, ranks(1, false), 12, {0, 1, 3}),
            cuts.share(lengths, ranks(1, true), 12, {0, 1, 3}));
}

TEST(WorkCuts, MicroBatchesByNumberOrBudget) {
  EXPECT_THAT(cut_by_number({5, 4, 1, 2}, 2, true),
              ElementsAre(ElementsAre(5, 4), ElementsAre(1, 2)));
  EXPECT_THAT(cut_by_number({5, 4, 1, 2}, 2, false),
              ElementsAre(ElementsAre(5, 1), ElementsAre(4, 2)));
  EXPECT_THAT(cut_by_tokens({5, 4, 1, 20, 2}, 6),
              ElementsAre(ElementsAre(5), ElementsAre(4, 1), ElementsAre(20), ElementsAre(2)));
}

// What balance is worth in a step, and that it changes nothing where all lengths are equal.
TEST(WorkCuts, BalancedUpdatesTakeLessTimeWhereLengthsDiffer) {
  PlanningProblem problem = make_test_problem();
  const auto step_s = [&](bool in_order) {
    ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
    for (CallPlan& entry : plan.calls)
      entry.strategy.in_order = in_order && entry.call != "generate";
    const auto trace =
        simulate(*compile(plan, problem), problem, committed_calibration(), SimOptions());
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace->step_s;
  };
  problem.workload.response = {LengthDistribution::Kind::kFixed, 256, 0, 0, {}};
  EXPECT_EQ(step_s(false), step_s(true));
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 256, 1.0, 1024, {}};
  EXPECT_LT(step_s(false), 0.99 * step_s(true));
}

}  // namespace
}  // namespace braid
