// Memory of the evaluator against that of the simulated step.
#include <gmock/gmock.h>

#include <cmath>

#include "base/units.h"
#include "plan/test_problem.h"
#include "plan/validate.h"
#include "search/judge.h"
#include "search/simulate.h"

namespace braid::inline search {
namespace {

struct Peaks {
  double evaluated = 0, simulated = 0;  // live bytes of the fullest device
  Verdict evaluator, simulator;
};

Peaks peaks_of(const PlanningProblem& problem, const ExecutionPlan& plan) {
  const auto pricer = CallPricer::make(problem, committed_calibration());
  BRAID_CHECK(pricer.ok(), pricer.status().message());
  const auto evaluated = evaluator_judge(problem, *pricer)(plan);
  BRAID_CHECK(evaluated.ok(), evaluated.status().message());
  const auto simulated = simulate_plan(plan, problem, committed_calibration(), {});
  BRAID_CHECK(simulated.ok(), simulated.status().message());
  const Efficiency& e = pricer->train_efficiency(problem.cluster.nodes[0].gpu);
  return {evaluated->peak_bytes,
          simulated->peak_bytes / std::sqrt(e.mem_reserve_factor) - e.mem_fixed_gib * kGib,
          *evaluated, *simulated};
}

// Sharded training of all weights with few long micro-batches, as imports have it.
ExecutionPlan sharded_plan(const PlanningProblem& problem) {
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  for (CallPlan& call : plan.calls) {
    const CallKind kind = find_call(problem.graph, call.call)->kind;
    if (kind == CallKind::kGenerate) {
      call.strategy.max_concurrent = 8;
      continue;
    }
    call.strategy.zero_stage = 3;
    call.strategy.micro_batches = kind == CallKind::kTrainStep ? 1 : 4;
    if (kind == CallKind::kTrainStep) call.strategy.recompute = Recompute::kFull;
  }
  return plan;
}

PlanningProblem qwen(const std::string& algorithm, Precision precision = Precision::kBf16) {
  TestProblem test;
  test.algorithm = algorithm, test.actor = test.critic = "qwen2.5-7b";
  test.prompts = 256, test.minibatches = 4;
  PlanningProblem problem = make_test_problem(test);
  for (auto& [role, model] : problem.models) model.precision = precision;
  return problem;
}

// Scalar heads have no vocabulary, losses run in chunks, and f32 doubles what 16 bit halves.
TEST(PlanMemory, EvaluatorAgreesWithTheSimulator) {
  for (const char* algorithm : {"ppo", "grpo", "sft", "rm"})
    for (const Precision precision : {Precision::kBf16, Precision::kF32}) {
      const PlanningProblem problem = qwen(algorithm, precision);
      const Peaks peaks = peaks_of(problem, sharded_plan(problem));
      EXPECT_NEAR(peaks.evaluated / peaks.simulated, 1, 0.02)
          << algorithm << " " << precision_name(precision) << " " << peaks.evaluated / kGib << " "
          << peaks.simulated / kGib;
    }
}

TEST(PlanMemory, EvaluatorAgreesOnPipelinesAndTensorParallelism) {
  const PlanningProblem problem = qwen("sft");
  for (const auto& [dp, tp, pp] : {std::tuple{1, 1, 4}, {2, 2, 2}, {1, 4, 2}, {4, 2, 1}}) {
    ExecutionPlan plan = uniform_plan(problem, 8 / (tp * pp), tp, pp);
    for (CallPlan& call : plan.calls) call.strategy.micro_batches = 4;
    const Peaks peaks = peaks_of(problem, plan);
    EXPECT_NEAR(peaks.evaluated / peaks.simulated, 1, 0.02) << dp << " " << tp << " " << pp;
  }
}

// All forwards first: a stage keeps the activations of all micro-batches, not of as many as stages.
TEST(PlanMemory, GPipeKeepsAllMicroBatches) {
  const PlanningProblem problem = qwen("sft");
  ExecutionPlan plan = uniform_plan(problem, 4, 1, 2);
  Strategy& strategy = plan.calls[0].strategy;
  strategy.micro_batches = 16;
  const Peaks early = peaks_of(problem, plan);
  strategy.schedule = PipelineOrder::kAllForwardFirst;
  const Peaks late = peaks_of(problem, plan);
  for (const Peaks& peaks : {early, late}) EXPECT_NEAR(peaks.evaluated / peaks.simulated, 1, 0.02);
  EXPECT_GT(late.simulated, 1.02 * early.simulated);
}

TEST(PlanMemory, WhatLivesOnTheHostIsWhatThePlanSays) {
  PlanningProblem problem = qwen("grpo");
  problem.workload.prompts = 4096, problem.workload.minibatches = 64;  // generation holds most
  double both_on_device = 0;
  for (const Residency weights : {Residency::kDevice, Residency::kHost})
    for (const Residency optimizer : {Residency::kDevice, Residency::kHost})
      for (const OffloadTiming timing :
           {OffloadTiming::kAfterLastCall, OffloadTiming::kAfterEachCall}) {
        const bool on_device = weights == Residency::kDevice && optimizer == Residency::kDevice;
        if (on_device && timing != OffloadTiming::kAfterLastCall) continue;  // means nothing
        ExecutionPlan plan = sharded_plan(problem);
        plan.roles = {{RoleId{"actor"}, weights, optimizer, timing}};
        for (CallPlan& call : plan.calls)
          if (call.call == "generate") {
            call.strategy.max_concurrent = 0;
            call.strategy.kv_budget_tokens = 1 << 20;
          }
        const Peaks peaks = peaks_of(problem, plan);
        EXPECT_NEAR(peaks.evaluated / peaks.simulated, 1, 0.02)
            << static_cast<int>(weights) << static_cast<int>(optimizer) << static_cast<int>(timing)
            << " " << peaks.evaluated / kGib << " " << peaks.simulated / kGib;
        if (on_device) both_on_device = peaks.evaluated;
        if (optimizer == Residency::kHost) {
          EXPECT_LT(peaks.evaluated, both_on_device - 5 * kGib);
        }
      }
}

// The first step begins with the caches of all prompts in flight.
TEST(PlanMemory, PromptsInFlightHaveCaches) {
  PlanningProblem problem = qwen("grpo");
  problem.workload.prompts = 4096, problem.workload.minibatches = 64;
  problem.workload.response = {LengthDistribution::Kind::kLognormal, 384, 0.5, 1536, {}};
  ExecutionPlan plan = sharded_plan(problem);
  for (CallPlan& call : plan.calls)
    if (call.call == "generate") call.strategy.max_concurrent = 1024;
  const Peaks waits = peaks_of(problem, plan);
  problem.graph = *carried_over(problem.graph, 1);
  problem.workload.prompts_in_flight = 8192;
  const Peaks carries = peaks_of(problem, plan);
  EXPECT_NEAR(carries.evaluated / carries.simulated, 1, 0.02);
  const double prompts = kv_bytes_per_token(problem.models.at("actor").spec, 2) *
                         mean_tokens(problem.workload.prompt) * (8192 - 4096) / 8;
  EXPECT_GT(carries.evaluated - waits.evaluated, prompts);
}

TEST(PlanMemory, WeightsAloneOnTheHostKeepTheOptimizerOnTheDevices) {
  const PlanningProblem problem = qwen("grpo");
  const auto pricer = CallPricer::make(problem, committed_calibration());
  ExecutionPlan plan = sharded_plan(problem);
  plan.roles = {{RoleId{"actor"}, Residency::kHost, Residency::kDevice}};
  const auto space = space_of_plan(plan, problem, *pricer);
  ASSERT_TRUE(space.ok()) << space.status().message();
  const ExecutionPlan back = plan_of(*space, Choice(space->num_coordinates(), 0));
  EXPECT_EQ(role_plan(back, RoleId{"actor"}), plan.roles[0]);
}

TEST(PlanMemory, TheLimitLowersTheDeviceContextIncluded) {
  PlanningProblem problem = qwen("sft");
  const ExecutionPlan plan = sharded_plan(problem);
  const Peaks whole = peaks_of(problem, plan);
  problem.memory_limit_gib = 1000;
  const Peaks above = peaks_of(problem, plan);
  EXPECT_EQ(above.simulator.capacity_bytes, whole.simulator.capacity_bytes);
  EXPECT_EQ(above.evaluator.capacity_bytes, whole.evaluator.capacity_bytes);
  problem.memory_limit_gib = 40;
  const Peaks below = peaks_of(problem, plan);
  const auto pricer = CallPricer::make(problem, committed_calibration());
  const Efficiency& e = pricer->train_efficiency(problem.cluster.nodes[0].gpu);
  const double usable = (40 - e.mem_context_gib) * kGib;
  EXPECT_DOUBLE_EQ(below.simulator.capacity_bytes, usable);
  EXPECT_DOUBLE_EQ(below.evaluator.capacity_bytes,
                   usable / std::sqrt(e.mem_reserve_factor) - e.mem_fixed_gib * kGib);
}

// An engine that reserves its cache holds all of it while it runs, however short the sequences, and
// the allocator's reserve does not come on top.
TEST(PlanMemory, ReservedCachesAreHeldWhole) {
  PlanningProblem problem = qwen("grpo");
  ExecutionPlan plan = sharded_plan(problem);
  Strategy* generate = nullptr;
  for (CallPlan& call : plan.calls)
    if (call.call == "generate") generate = &call.strategy;
  ASSERT_NE(generate, nullptr);
  const auto peaks_with = [&](bool reserves, int64_t tokens) {
    problem.reserves_cache = reserves;
    generate->kv_budget_tokens = tokens;
    return peaks_of(problem, plan);
  };
  const int64_t few = 64 * 1024, many = 256 * 1024;
  const double cache = kv_bytes_per_token(problem.models.at("actor").spec, 2) * (many - few);
  EXPECT_EQ(peaks_with(false, few).evaluated, peaks_with(false, many).evaluated);
  const Peaks small = peaks_with(true, few), large = peaks_with(true, many);
  EXPECT_NEAR(large.simulator.peak_bytes - small.simulator.peak_bytes, cache, 0.1 * kGib);
  EXPECT_NEAR(large.simulated - small.simulated, large.evaluated - small.evaluated, 0.1 * kGib);
  EXPECT_NEAR(large.evaluated / large.simulated, 1, 0.02);
}

}  // namespace
}  // namespace braid::inline search
