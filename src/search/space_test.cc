// What fields and state cost in the evaluator of the search, and what pruning may do about it.
#include "search/space.h"

#include <gtest/gtest.h>

#include <tuple>

#include "optimize/exhaustive.h"
#include "plan/execution_plan.h"
#include "plan/plan_text.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "pricing/efficiency.h"
#include "program/placement.h"
#include "search/domain.h"

namespace braid::inline search {
namespace {

// GRPO on two nodes of two devices: few samples of very different lengths.
PlanningProblem two_nodes() {
  PlanningProblem problem = make_test_problem({.algorithm = "grpo",
                                               .actor = "llama3.2-1b",
                                               .nodes = 2,
                                               .devices = 2,
                                               .prompts = 4,
                                               .minibatches = 1});
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 384, 1.5, 4096, {}};
  return problem;
}

bool on_second_node(const CallPlan& plan) { return plan.mesh.devices.front().value >= 2; }

// The reference on the second node under any strategy of two devices, all else in one way on the
// first.
bool reference_apart(const CallPlan& plan) {
  if (plan.mesh.devices.size() != 2) return false;
  if (plan.call == "ref_logprob") return on_second_node(plan);
  const Strategy& s = plan.strategy;
  return !on_second_node(plan) && s.dp == 2 && s.micro_batches == 1 && s.micro_tokens == 0 &&
         s.zero_stage < 2;
}

struct Enumerated {
  int64_t least_us = 0;
  size_t options = 0;  // of the reference
};

Enumerated enumerate(const PlanningProblem& problem, bool prune) {
  const auto pricer = CallPricer::make(problem, committed_calibration());
  const auto space =
      make_plan_space(problem, *pricer, {.prune = prune, .allowed = reference_apart});
  BRAID_CHECK(space.ok(), space.status().message());
  const PlanDomain domain(*space);
  PlanState state = domain.fixed_start();
  optimize::exhaustive_search(domain, state);
  EXPECT_EQ(state.cost.excess_bytes, 0);
  Enumerated out{state.cost.time_us, 0};
  for (const CallSpace& call : space->calls)
    if (problem.graph.calls[call.call.value].name == "ref_logprob")
      out.options = call.options.size();
  return out;
}

// The fastest reference by itself is not the best one: over fewer replicas each waits longer for
// its fields.
TEST(PlanSpace, PruningKeepsTheOptimumOverASlowNetwork) {
  bool fewer = false;
  for (const double gbps : {1e-7, 1e-5, 1e-3, 100.0}) {
    PlanningProblem problem = two_nodes();
    for (Node& node : problem.cluster.nodes) node.nic_gbps_per_gpu = gbps;
    const Enumerated pruned = enumerate(problem, true), full = enumerate(problem, false);
    fewer |= pruned.options < full.options;
    EXPECT_EQ(pruned.least_us, full.least_us) << gbps << " Gbit/s";
  }
  EXPECT_TRUE(fewer);
}

// Bytes of the program's messages into the devices of one call: all replicas lack everything.
TEST(PlanSpace, InputBytesAreThoseOfTheProgramsMessages) {
  const PlanningProblem problem = two_nodes();
  const auto pricer = CallPricer::make(problem, committed_calibration());
  const auto space = make_plan_space(problem, *pricer);
  ASSERT_TRUE(space.ok()) << space.status().message();
  ExecutionPlan plan = plan_for(problem);
  for (const Call& call : problem.graph.calls) {
    if (!uses_model(call)) continue;
    const bool apart = call.name == "ref_logprob";
    CallPlan entry{call.name, *contiguous_mesh(problem.cluster, apart ? 2 : 0, 2), {}};
    entry.strategy.dp = 2;
    plan.calls.push_back(entry);
  }
  const auto program = compile(plan, problem);
  ASSERT_TRUE(program.ok()) << program.status().message();
  double sent = 0;
  for (const Exchange& exchange : program->exchanges) {
    if (exchange.shared() || problem.graph.calls[exchange.consumer.value].name != "ref_logprob")
      continue;
    const auto samples = static_cast<double>(program->calls[exchange.producer.value].samples);
    for (const Field& field : problem.graph.calls[exchange.producer.value].writes)
      if (std::count(exchange.fields.begin(), exchange.fields.end(), field.name) > 0)
        sent += samples * field_bytes(problem.workload, field);
  }
  for (const CallSpace& call : space->calls)
    if (problem.graph.calls[call.call.value].name == "ref_logprob") {
      EXPECT_GT(sent, 0);
      EXPECT_NEAR(call.input_bytes, sent, 1e-6 * sent);
    }
}

TEST(PlanSpace, OptionsAreTheSameForAnyNumberOfThreads) {
  const PlanningProblem problem = two_nodes();
  const auto options_of = [&](int threads) {
    const auto pricer = CallPricer::make(problem, committed_calibration());
    std::vector<std::tuple<int32_t, int32_t, int64_t, double, std::string>> out;
    for (int again = 0; again < 2; ++again) {  // with nothing known, then with everything
      const auto space = make_plan_space(problem, *pricer, {.allowed = {}, .threads = threads});
      BRAID_CHECK(space.ok(), space.status().message());
      for (const CallSpace& call : space->calls)
        for (const PlanOption& option : call.options)
          out.emplace_back(option.first, option.end, option.time_us, option.transient_bytes,
                           strategy_text(call.strategies[option.strategy]));
    }
    return out;
  };
  const auto alone = options_of(1);
  EXPECT_GT(alone.size(), 100U);
  for (const int threads : {2, 3, 8}) EXPECT_EQ(options_of(threads), alone) << threads;
}

TEST(PlanSpace, RatesAreThoseOfTheDevicesThatTakePart) {
  PlanningProblem problem = two_nodes();
  problem.cluster = *parse_cluster(
      "nodes: [{gpu: a100-80g, gpus_per_node: 2}, "
      "{gpu: a100-80g, gpus_per_node: 2, nic_gbps_per_gpu: 10, pcie_gbytes_per_s: 5}]",
      "c.yaml");
  const auto pricer = CallPricer::make(problem, committed_calibration());
  const auto space = make_plan_space(problem, *pricer);
  ASSERT_TRUE(space.ok()) << space.status().message();
  const auto rates_of = [&](int32_t first, int32_t end) {
    for (const PlanOption& option : space->calls[0].options)
      if (option.first == first && option.end == end) return space->rates[option.rates];
    ADD_FAILURE() << "no option on " << first << " to " << end;
    return MoveRates();
  };
  const MoveRates fast = rates_of(0, 2), slow = rates_of(2, 4), both = rates_of(0, 4);
  EXPECT_NEAR(fast.network / slow.network, 20, 1e-9);
  EXPECT_NEAR(fast.host / slow.host, 31.0 / 5, 1e-9);
  EXPECT_EQ(fast.inside, slow.inside);
  EXPECT_EQ(both, slow);
}

TEST(PlanSpace, BridgedPairsMoveOverTheHostLink) {
  PlanningProblem problem = two_nodes();
  const auto inside = [&](const char* gpu) {
    problem.cluster = *make_cluster(*find_gpu(gpu), 1, 4);
    const auto pricer = CallPricer::make(problem, committed_calibration());
    const auto space = make_plan_space(problem, *pricer);
    return space->rates.front().inside;
  };
  EXPECT_LT(inside("a100-pcie"), 31e9);
  EXPECT_GT(inside("a100-80g"), 31e9);
}

// Of the options of updates.
size_t with_all_forwards_first(const PlanningProblem& problem) {
  const auto pricer = CallPricer::make(problem, committed_calibration());
  const auto space = make_plan_space(problem, *pricer);
  BRAID_CHECK(space.ok(), space.status().message());
  size_t count = 0;
  for (const CallSpace& call : space->calls)
    for (const Strategy& strategy : call.strategies)
      count += strategy.schedule == PipelineOrder::kAllForwardFirst ? 1 : 0;
  return count;
}

// They wait less often for messages, and keep more.
TEST(PlanSpace, AllForwardsComeFirstWhereLinksAreSlow) {
  PlanningProblem problem = make_test_problem(
      {.algorithm = "grpo", .gpu = "h100-80g", .nodes = 2, .prompts = 64, .samples = 4});
  for (Node& node : problem.cluster.nodes) node.nic_gbps_per_gpu = 3;
  EXPECT_GT(with_all_forwards_first(problem), 0U);
  problem.cluster = *make_cluster(problem.cluster.nodes[0].gpu, 1, 8);
  EXPECT_EQ(with_all_forwards_first(problem), 0U);
}

}  // namespace
}  // namespace braid::inline search
