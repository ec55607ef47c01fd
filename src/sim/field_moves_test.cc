// When fields of samples move, and what all ranks tell each other when they have fetched.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/test_problem.h"
#include "pricing/rl_engine.h"
#include "program/exchange.h"
#include "program/program.h"
#include "sim/exchange_prices.h"
#include "sim/testing.h"

namespace braid::inline sim {
namespace {

// Lengths differ, so that ranks end at different times.
PlanningProblem uneven_problem() {
  PlanningProblem problem = make_test_problem({.actor = "qwen2.5-0.5b",
                                               .critic = "qwen2.5-0.5b",
                                               .devices = 4,
                                               .prompts = 32,
                                               .minibatches = 1});
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 384, 0.8, 1024, {}};
  return problem;
}

const CallSummary& summary_of(const Trace& trace, const std::string& call) {
  const auto found = std::find_if(
      trace.calls.begin(), trace.calls.end(),
      [&](const CallSummary& each) { return trace.call_names[each.call.value] == call; });
  BRAID_CHECK(found != trace.calls.end(), call);
  return *found;
}

// Values go to the one rank that computes advantages: a sender's part begins when its own are
// there, that rank's when all have come.
TEST(FieldMoves, BeginWhenThoseWhoSendHaveCome) {
  const PlanningProblem problem = uneven_problem();
  const Program program = *compile(uniform_plan(problem, 4, 1, 1), problem);
  const Trace trace = traced(program, problem);
  const CallSummary& values = summary_of(trace, "values");
  ASSERT_EQ(values.spans.size(), 4u);
  double last = 0;
  for (const auto& [device, span] : values.spans) last = std::max(last, span.second);
  int receiving = 0;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != EventKind::kExchange) continue;
    const int32_t entry = program.ranks[event.device.value].instructions[event.instruction].detail;
    if (program.exchanges[entry].producer != values.call) continue;
    EXPECT_GE(event.start_s, values.spans.at(event.device).second - 1e-12);
    if (event.bytes > 0) {
      ++receiving;
      EXPECT_GE(event.start_s, last - 1e-12);
    }
  }
  EXPECT_EQ(receiving, 1);
}

struct FourSamples : RowsByRank {
  size_t samples() const override { return 4; }
  std::vector<SampleRows> written_by_rank(CallId, int64_t, SamplePart) override {
    return {{0}, {1}, {2}, {3}};
  }
  std::vector<SampleRows> read_by_rank(CallId, int64_t, SamplePart) override {
    return {{0}, {0, 1}, {}, {0, 2, 3}};
  }
  std::vector<SampleRows> told_by_rank(CallId, int64_t) override { return {}; }
};

TEST(FieldMoves, OfARankComeFromThoseThatHaveItsRows) {
  const PlanningProblem problem = make_test_problem({.algorithm = "grpo", .devices = 4});
  Program program = *compile(uniform_plan(problem, 4, 1, 1), problem);
  const auto found = std::find_if(program.exchanges.begin(), program.exchanges.end(),
                                  [](const Exchange& each) { return !each.shared(); });
  ASSERT_NE(found, program.exchanges.end());
  program.exchanges = {*found};
  SampleLengths lengths;
  lengths.prompt = lengths.response = {3, 3, 3, 3};
  FourSamples rows;
  const ExchangeLinks links = {[](DeviceId, DeviceId, double) {
                                 return LinkTime{1, LinkKind::kNvlink};
                               },
                               [](OpKind, double) { return 0.0; }};
  const auto prices = price_exchanges(program, problem.workload, lengths, {}, rows, links);
  ASSERT_EQ(prices.size(), 1u);
  EXPECT_TRUE(prices[0][0].senders.empty());
  EXPECT_EQ(prices[0][1].senders, (std::vector<int32_t>{0}));
  EXPECT_TRUE(prices[0][2].senders.empty());
  EXPECT_EQ(prices[0][3].senders, (std::vector<int32_t>{0, 2}));
}

// A word and a number a prompt of each rank, padded to the most; where most ranks have none, a sum.
TEST(FieldMoves, WhatAFetchTells) {
  const Call generated = make_test_problem({.algorithm = "grpo"}).graph.calls[0];
  ASSERT_EQ(generated.kind, CallKind::kFetch);
  EXPECT_EQ(told_numbers(generated, 8), 1);
  EXPECT_FALSE(told_in_fetch(generated, 10, 8, 1));
  EXPECT_EQ(told_by_ranks(generated, 10, 8, 4), (std::vector<int64_t>{3, 4, 3, 4}));
  const auto even = told_in_fetch(generated, 10, 8, 4);
  ASSERT_TRUE(even);
  EXPECT_EQ(even->kind, OpKind::kAllGather);
  EXPECT_EQ(even->bytes, 4 * (1 + 3) * 4);
  const Call answered = make_test_problem({.algorithm = "sft"}).graph.calls[0];
  EXPECT_EQ(told_numbers(answered, 8), 3);
  const auto few = told_in_fetch(answered, 2, 8, 16);
  ASSERT_TRUE(few);
  EXPECT_EQ(few->kind, OpKind::kAllReduce);
  EXPECT_EQ(few->bytes, (16 + 2 * 3) * 4);
}

// All ranks wait for it before the step goes on.
TEST(FieldMoves, AFetchIsSharedWhenAllHaveTold) {
  const PlanningProblem problem = uneven_problem();
  const Trace trace = traced(uniform_plan(problem, 4, 1, 1), problem);
  const CallSummary& fetch = summary_of(trace, "fetch");
  const Efficiency efficiency =
      family_efficiency(committed_calibration(), gpu_of(problem.cluster, DeviceId{0}),
                        Precision::kBf16, problem.train_engine, problem.generate_engine);
  const Node& node = problem.cluster.nodes.front();
  const auto said = told_in_fetch(problem.graph.calls[0], 32, 1, 4);
  ASSERT_TRUE(said);
  const double told =
      collective_s(CollectiveOp::kAllGather, static_cast<double>(said->bytes),
                   make_group(node.gpu, 4, 1, node.devices, node.nic_gbps_per_gpu), efficiency);
  EXPECT_GT(told, 0);
  ASSERT_EQ(fetch.spans.size(), 4u);
  for (const auto& [device, span] : fetch.spans)
    EXPECT_NEAR(span.second - span.first, efficiency.rl_step_host_s, 1e-9);
  EXPECT_NEAR(summary_of(trace, "generate").start_s, efficiency.rl_step_host_s + told, 1e-9);
}

}  // namespace
}  // namespace braid::inline sim
