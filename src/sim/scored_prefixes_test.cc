// What scoring samples before they end gains, and what it takes of memory.
#include "program/scored_prefixes.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "batching/cache_pages.h"
#include "plan/test_problem.h"
#include "sim/step_prices.h"

namespace braid::inline sim {
namespace {

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
    whole_ = compiled(plan);
    plan.fusion.scored_prefixes = true;
    program_ = compiled(plan);
  }

  Program compiled(const ExecutionPlan& plan) const {
    auto program = compile(plan, problem_);
    EXPECT_TRUE(program.ok()) << program.status().message();
    return *std::move(program);
  }
  Trace traced(const Program& program, bool free = false) const {
    SimOptions options;
    options.free_prefixes = free;
    auto trace = simulate(program, problem_, committed_calibration(), options);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return *std::move(trace);
  }
  // Seconds until the last sample is scored by a call that may begin early.
  double scored_s(const Program& program, bool free = false) const {
    double out = 0;
    for (const CallSummary& call : traced(program, free).calls)
      for (const CallId scorer : program.scoring.scorers)
        if (call.call == scorer) out = std::max(out, call.end_s);
    return out;
  }

  PlanningProblem problem_ = make_test_problem({.actor = "qwen2.5-7b",
                                                .critic = "qwen2.5-7b",
                                                .gpu = "h100-80g",
                                                .nodes = 2,
                                                .prompts = 512,
                                                .response_tokens = 400});
  Program whole_, program_;
};

// Each token is computed once, and what comes after a beginning where its keys are.
TEST_F(TailTest, RanksThatHaveABeginningScoreItsRest) {
  const SampleLengths lengths = draw_lengths(problem_.workload, 0);
  StepPrices prices(program_, problem_, committed_calibration(), {}, lengths);
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
  const double whole = scored_s(whole_), once = scored_s(program_), bound = scored_s(whole_, true);
  EXPECT_LT(once, 0.99 * whole);
  EXPECT_LT(bound, once);
  std::printf("scored after %.3f s, with beginnings %.3f s, at most %.3f s\n", whole, once, bound);
}

// Emulated ranks ask for the seconds of ops, which are those of what is left.
TEST_F(TailTest, OpsOfTheRestTakeWhatIsLeft) {
  StepPrices prices(program_, problem_, committed_calibration(), {},
                    draw_lengths(problem_.workload, 0));
  ASSERT_TRUE(prices.prepare().ok());
  const CallId scorer = program_.scoring.scorers.front();
  const Partition& rest = prices.partition(scorer, SamplePart::kLate);
  const auto rank =
      static_cast<int>(std::find_if(rest.owned.begin(), rest.owned.end(),
                                    [](const SampleRows& rows) { return !rows.empty(); }) -
                       rest.owned.begin());
  const DeviceId device = program_.calls[scorer.value].mesh.devices[rank];
  const Expansion ops = expand(program_, scorer, device, rest, SamplePart::kLate);
  double seconds = 0, tokens = 0, whole = 0;
  for (const double each : prices.op_seconds(ops, rest, SamplePart::kLate)) seconds += each;
  for (const double each : prices.op_seconds(ops, rest)) whole += each;
  for (const int32_t row : rest.owned[rank])
    tokens += static_cast<double>(prices.samples(scorer)[row].prompt +
                                  prices.samples(scorer)[row].response);
  double left = 0;
  for (const int64_t each : rest.minibatches.front().tokens[rank])
    left += static_cast<double>(each);
  EXPECT_LT(left, 0.8 * tokens);
  EXPECT_LT(seconds, 0.9 * whole);
  EXPECT_GT(seconds, 0);
}

// Keys and values of the beginnings, in whole pages, are held from one part of a call to the other.
TEST_F(TailTest, HoldsTheCachesOfBeginnings) {
  const SampleLengths lengths = draw_lengths(problem_.workload, 0);
  StepPrices prices(program_, problem_, committed_calibration(), {}, lengths);
  ASSERT_TRUE(prices.prepare().ok());
  const CallId scorer = program_.scoring.scorers.front();
  const HandOver& handed = prices.hand_overs().back().handed;
  double tokens = 0, bytes = 0;
  for (size_t i = 0; i < handed.late.size(); ++i)
    tokens += static_cast<double>(
        kPageTokens * pages_for(lengths.prompt[handed.late[i]] + handed.produced[i] - 1));
  for (int dp_rank = 0; dp_rank < 16; ++dp_rank) bytes += prices.begun_bytes(scorer, dp_rank);
  EXPECT_DOUBLE_EQ(bytes, tokens * prices.cost(scorer).cache_bytes_per_token());
  SimOptions options;
  options.memory_curve = true;
  const auto held = [&](const Program& program) {
    double most = 0;
    const auto trace = simulate(program, problem_, committed_calibration(), options);
    double scored_from_s = 0;
    for (const CallSummary& call : trace->calls)
      if (call.call == program.scoring.generate) scored_from_s = call.end_s;
    for (const DeviceSummary& device : trace->devices)
      for (const MemoryPoint& point : device.memory)
        if (point.at_s > scored_from_s) most = std::max(most, point.use[MemoryOwner::kKvCache]);
    return most;
  };
  EXPECT_EQ(held(whole_), 0);
  EXPECT_GE(held(program_), prices.begun_bytes(scorer, 15));
  EXPECT_GT(prices.begun_bytes(scorer, 15), 0);
}

}  // namespace
}  // namespace braid::inline sim
