// What scoring samples before they end would gain.
#include "sim/scored_prefixes.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "plan/test_problem.h"
#include "sim/step_prices.h"

namespace braid::inline sim {
namespace {

// A replica that goes on with rows 1 and 3 of four, and one whose samples have finished.
std::vector<PricedHandOver> handed_over() {
  PricedHandOver out;
  out.handed.late = {1, 3};
  out.handed.left = {{}, {1, 3}};
  out.left = {{}, {{.prompt = 7, .response = 20, .produced = 12}, {.prompt = 7, .response = 9}}};
  return {out};
}

std::vector<PartitionSample> four_samples() {
  std::vector<PartitionSample> out;
  for (const int64_t response : {3, 20, 4, 9})
    out.push_back({SampleId{std::ssize(out)}, GroupId{0}, 7, response});
  return out;
}

using Tokens = std::vector<int64_t>;

TEST(ScoredPrefixes, AreWhatThereWasOfEachSample) {
  const auto scored = [](ScoredPrefixes how, const FreeRanks& free) {
    return prefixes_scored(how, four_samples(), handed_over(), free);
  };
  EXPECT_EQ(scored(ScoredPrefixes::kAtHandOver, {{true, false}}), (Tokens{0, 18, 0, 6}));
  EXPECT_EQ(scored(ScoredPrefixes::kFree, {{true, false}}), (Tokens{0, 26, 0, 15}));
  EXPECT_EQ(scored(ScoredPrefixes::kAtHandOver, {{false, false}}), Tokens());
}

// Beginning and rest are the sample, and a row of the rest sees all before it.
TEST(ScoredPrefixes, CutEachSampleOnce) {
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
}

// Lengths with a tail on 16 devices, each a replica.
class TailTest : public testing::Test {
 protected:
  TailTest() {
    problem_.workload.response.kind = LengthDistribution::Kind::kLognormal;
    problem_.workload.response.sigma = 0.8;
    problem_.workload.response.longest = 2048;
    ExecutionPlan plan = uniform_plan(problem_, 16, 1, 1);
    for (CallPlan& call : plan.calls) {
      if (call.call != "generate") call.strategy.micro_tokens = 16384;
      if (call.call.starts_with("update")) call.strategy.zero_stage = 3;
    }
    plan.fusion.migrate_below_samples = 32;
    auto program = compile(plan, problem_);
    EXPECT_TRUE(program.ok()) << program.status().message();
    program_ = *std::move(program);
  }

  SimOptions options(ScoredPrefixes how) const {
    SimOptions out;
    out.scored_prefixes = how;
    return out;
  }
  // Seconds until the last sample is scored by a call that may begin early.
  double scored_s(ScoredPrefixes how) {
    const auto trace = simulate(program_, problem_, committed_calibration(), options(how));
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    double out = 0;
    for (const CallSummary& call : trace->calls)
      for (const CallId scorer : program_.scoring.scorers)
        if (call.call == scorer) out = std::max(out, call.end_s);
    return out;
  }

  PlanningProblem problem_ = make_test_problem({.actor = "qwen2.5-7b",
                                                .critic = "qwen2.5-7b",
                                                .gpu = "h100-80g",
                                                .nodes = 2,
                                                .prompts = 512,
                                                .response_tokens = 400});
  Program program_;
};

// Each token is computed once, and what comes after a beginning where its keys are.
TEST_F(TailTest, RanksThatHaveABeginningScoreItsRest) {
  const SimOptions what_if = options(ScoredPrefixes::kAtHandOver);
  const SampleLengths lengths = draw_lengths(problem_.workload, what_if.seed);
  StepPrices prices(program_, problem_, committed_calibration(), what_if, lengths);
  ASSERT_TRUE(prices.prepare().ok());
  const double all = std::accumulate(lengths.prompt.begin(), lengths.prompt.end(), 0.0) +
                     std::accumulate(lengths.response.begin(), lengths.response.end(), 0.0);
  ASSERT_FALSE(program_.scoring.scorers.empty());
  for (const CallId call : program_.scoring.scorers) {
    double tokens = 0;
    size_t rest = 0;
    std::vector<std::set<int32_t>> begun(16);
    for (const SamplePart part : parts_of_call(program_, call)) {
      const auto samples = prices.samples(call, part);
      const MiniBatch& batch = prices.partition(call, part).minibatches.front();
      for (size_t rank = 0; rank < batch.micro_batches.size(); ++rank)
        for (const SampleRows& rows : batch.micro_batches[rank]) {
          tokens += prices.micro_batch(call, rows, samples, part).tokens;
          for (const int32_t row : rows) {
            if (!begun[rank].insert(row).second) ++rest;
          }
        }
    }
    EXPECT_EQ(tokens, all);
    EXPECT_EQ(rest, prices.hand_overs().front().handed.late.size());
    EXPECT_GT(rest, 0u);
  }
}

TEST_F(TailTest, GainsLessThanAtNoCost) {
  const double whole = scored_s(ScoredPrefixes::kNone),
               once = scored_s(ScoredPrefixes::kAtHandOver),
               bound = scored_s(ScoredPrefixes::kFree);
  EXPECT_LT(once, 0.99 * whole);
  EXPECT_LT(bound, once);
  std::printf("scored after %.3f s, with beginnings %.3f s, at most %.3f s\n", whole, once, bound);
}

}  // namespace
}  // namespace braid::inline sim
