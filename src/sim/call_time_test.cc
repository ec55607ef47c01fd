// Calls priced alone against the same calls inside a simulated step.
#include <gtest/gtest.h>

#include "plan/execution_plan.h"
#include "plan/test_problem.h"
#include "pricing/rl_engine.h"
#include "sim/call_time.h"

namespace braid::inline sim {
namespace {

struct Variant {
  const char* call;
  Strategy strategy;
};

Strategy grid(int dp, int tp, int pp, int64_t micro_batches = 1) {
  Strategy s;
  s.dp = dp, s.tp = tp, s.pp = pp;
  s.micro_batches = micro_batches;
  s.sequence_parallel = tp > 1;
  return s;
}

Strategy train_grid(Strategy s, int zero_stage, Recompute recompute, int interleave = 1) {
  s.zero_stage = zero_stage, s.recompute = recompute, s.interleave = interleave;
  return s;
}

std::vector<Variant> variants() {
  Strategy replicas = grid(4, 2, 1), pipeline = grid(1, 4, 2);
  replicas.sequence_parallel = pipeline.sequence_parallel = false;
  Strategy all_forward = train_grid(grid(2, 2, 2, 4), 1, Recompute::kNone);
  all_forward.schedule = PipelineOrder::kAllForwardFirst;
  return {{"generate", replicas},
          {"generate", pipeline},
          {"ref_logprob", grid(8, 1, 1, 8)},
          {"ref_logprob", grid(2, 1, 4, 16)},
          {"ref_logprob", grid(1, 2, 4, 8)},
          {"update_actor", train_grid(grid(8, 1, 1, 2), 3, Recompute::kFull)},
          {"update_actor", train_grid(grid(2, 2, 2, 4), 1, Recompute::kSelective)},
          {"update_actor", train_grid(grid(1, 1, 8, 16), 0, Recompute::kNone)},
          {"update_actor", all_forward},
          {"update_critic", train_grid(grid(1, 2, 4, 8), 0, Recompute::kFull, 2)}};
}

// Seconds of the call in a step in which every other call runs on all devices with tp 8.
double simulated_s(const PlanningProblem& problem, const Variant& variant) {
  ExecutionPlan plan = uniform_plan(problem, 1, 8, 1);
  int32_t index = -1;
  for (CallPlan& entry : plan.calls)
    if (entry.call == variant.call) entry.strategy = variant.strategy;
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  for (size_t i = 0; i < problem.graph.calls.size(); ++i)
    if (problem.graph.calls[i].name == variant.call) index = static_cast<int32_t>(i);
  double begin = 1e30, end = 0;
  SimOptions options;
  options.events = true;
  const auto trace = simulate(*program, problem, committed_calibration(), options);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  for (const TraceEvent& event : trace->events) {
    const bool passes = event.kind == EventKind::kForward || event.kind == EventKind::kBackward ||
                        event.kind == EventKind::kGenerate || event.kind == EventKind::kOptimizer ||
                        event.kind == EventKind::kReduce;
    if (event.call.value != index || !passes) continue;
    begin = std::min(begin, event.start_s);
    end = std::max(end, event.end_s);
  }
  return end - begin;
}

double alone_s(const PlanningProblem& problem, const Variant& variant, double train_factor = 0) {
  const Call* call = find_call(problem.graph, variant.call);
  const bool generates = call->kind == CallKind::kGenerate;
  auto device = make_device(problem.cluster.nodes[0].gpu, Precision::kBf16,
                            generates ? problem.generate_engine : problem.train_engine,
                            committed_calibration(), problem.generate_engine);
  if (train_factor > 0) device->efficiency.rl_train_factor = train_factor;
  const CallPlan plan{variant.call, whole_cluster(problem.cluster), variant.strategy};
  CallTimer timer(problem, draw_lengths(problem.workload, 0));
  return timer.time(*call, plan, CallCost::make(*call, plan, problem, {*device})).total_s;
}

void expect_equal_times(const PlanningProblem& problem, const Variant& variant) {
  const double expected = simulated_s(problem, variant);
  EXPECT_NEAR(alone_s(problem, variant) / expected, 1, 1e-3)
      << variant.call << " dp" << variant.strategy.dp << " tp" << variant.strategy.tp << " pp"
      << variant.strategy.pp << " minibatches " << problem.workload.minibatches << " epochs "
      << problem.workload.epochs << " of " << expected << " s";
}

TEST(CallTime, EqualsTheCallInASimulatedStep) {
  for (const bool long_tail : {false, true}) {
    PlanningProblem problem =
        make_test_problem({.actor = "llama3.2-1b", .critic = "llama3.2-1b", .prompts = 64});
    if (long_tail)
      problem.workload.response = {LengthDistribution::Kind::kLognormal, 384, 0.8, 2048, {}};
    for (const Variant& variant : variants()) expect_equal_times(problem, variant);
  }
}

// A generation that leaves samples to the next step ends when it has enough, in both.
TEST(CallTime, OfAGenerationThatLeavesSamplesIsThatOfAUsualStep) {
  PlanningProblem waits =
      make_test_problem({.algorithm = "grpo", .actor = "llama3.2-1b", .prompts = 32, .samples = 4});
  waits.workload.response = {LengthDistribution::Kind::kLognormal, 384, 1, 4096, {}};
  PlanningProblem carries = waits;
  carries.graph = *carried_over(carries.graph, 1);
  carries.workload.prompts_in_flight = 48;
  for (const size_t generation : {size_t{0}, size_t{1}}) {
    const Variant variant = variants()[generation];
    expect_equal_times(carries, variant);
    EXPECT_LT(alone_s(carries, variant), 0.9 * alone_s(waits, variant));
  }
}

// Every pass over the samples takes its optimizer steps, whether mini-batches come again or not.
TEST(CallTime, EpochsCountTheirOptimizerSteps) {
  for (const int64_t minibatches : {1, 2}) {
    PlanningProblem problem =
        make_test_problem({.actor = "llama3.2-1b", .critic = "llama3.2-1b", .prompts = 64});
    problem.workload.minibatches = minibatches;
    problem.workload.response = {LengthDistribution::Kind::kLognormal, 384, 0.8, 2048, {}};
    const Variant update = variants()[5];
    ASSERT_STREQ(update.call, "update_actor");
    const double once = alone_s(problem, update);
    problem.workload.epochs = 4;
    expect_equal_times(problem, update);
    EXPECT_NEAR(alone_s(problem, update) / (4 * once), 1, 1e-3);
    for (const size_t pipeline : {size_t{6}, size_t{8}})
      expect_equal_times(problem, variants()[pipeline]);
  }
}

// The factor of updates inside a step holds for all of an update, as in the closed form that it was
// fitted with: passes, gradients, optimizer and updated weights.
TEST(CallTime, TheTrainFactorHoldsForWholeUpdates) {
  const PlanningProblem problem = make_test_problem({.actor = "llama3.2-1b", .prompts = 64});
  for (const int zero_stage : {0, 1, 2, 3}) {
    const Variant update{"update_actor",
                         train_grid(grid(8, 1, 1, 2), zero_stage, Recompute::kNone)};
    EXPECT_NEAR(alone_s(problem, update, 1.5) / alone_s(problem, update, 1), 1.5, 1e-9)
        << "zero " << zero_stage;
  }
}

// Two stages, equal micro-batches: the second stage begins one pass later, and then both agree.
TEST(CallTime, StagesOfAnInferencePassAreStaggeredAndEndTogether) {
  const PlanningProblem problem = make_test_problem({.actor = "llama3.2-1b", .prompts = 64});
  const Call* call = find_call(problem.graph, "ref_logprob");
  const auto device = make_device(problem.cluster.nodes[0].gpu, Precision::kBf16,
                                  problem.train_engine, committed_calibration());
  const CallPlan plan{"ref_logprob", whole_cluster(problem.cluster), grid(4, 1, 2, 4)};
  CallTimer timer(problem, draw_lengths(problem.workload, 0));
  const CallCost cost = CallCost::make(*call, plan, problem, {*device});
  const CallTime time = timer.time(*call, plan, cost);
  ASSERT_EQ(time.stages.size(), 2U);
  EXPECT_TRUE(time.joint);
  EXPECT_GT(cost.agreements_s(), 0);
  EXPECT_GT(time.total_s, time.stages[0].busy_s + cost.agreements_s());
  EXPECT_GT(time.total_s, time.stages[1].busy_s + cost.agreements_s());
  EXPECT_EQ(time.total_s, time.stages[0].end_s);
  EXPECT_EQ(time.total_s, time.stages[1].end_s);
  EXPECT_LT(time.total_s, time.stages[0].busy_s + time.stages[1].busy_s);
}

// Tensor-parallel pairs across nodes take longer than those inside of them, whatever their numbers
// say; the other way round devices have the same links.
TEST(CallTime, LinksAreThoseOfTheDevicesInTheirOrder) {
  const PlanningProblem problem =
      make_test_problem({.actor = "llama3.2-1b", .nodes = 2, .devices = 2, .prompts = 64});
  const Call* call = find_call(problem.graph, "ref_logprob");
  const auto device = make_device(problem.cluster.nodes[0].gpu, Precision::kBf16,
                                  problem.train_engine, committed_calibration());
  const auto seconds = [&](const std::vector<int>& order) {
    CallPlan plan{"ref_logprob", {}, grid(2, 2, 1, 4)};
    for (const int number : order) plan.mesh.devices.push_back(DeviceId{number});
    CallTimer timer(problem, draw_lengths(problem.workload, 0));
    return timer.time(*call, plan, CallCost::make(*call, plan, problem, {*device})).total_s;
  };
  EXPECT_EQ(seconds({3, 2, 1, 0}), seconds({0, 1, 2, 3}));
  EXPECT_GT(seconds({0, 2, 1, 3}), 1.02 * seconds({0, 1, 2, 3}));
}

}  // namespace
}  // namespace braid::inline sim
