// Predicted lengths of responses, and what a step gains by them.
#include "sim/predicted_lengths.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/test_problem.h"
#include "program/program.h"

namespace braid::inline sim {
namespace {

PlanningProblem tail_problem(int64_t samples) {
  TestProblem test{.algorithm = "grpo", .gpu = "b200", .devices = 8, .prompts = 512 / samples};
  test.actor = "qwen2.5-7b", test.samples = samples;
  test.prompt_tokens = 512, test.response_tokens = 512;
  PlanningProblem problem = make_test_problem(test);
  problem.workload.response.kind = LengthDistribution::Kind::kLognormal;
  problem.workload.response.sigma = 1;
  problem.workload.response.longest = 4096;
  return problem;
}

double correlation_of(const SampleLengths& lengths, int64_t copies, double wanted) {
  const auto predicted = predicted_lengths(lengths, copies, wanted, 1);
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < predicted.size(); i += copies) {
    double mean = 0;
    for (int64_t k = 0; k < copies; ++k)
      mean += static_cast<double>(lengths.response[i + k]) / static_cast<double>(copies);
    const auto said = static_cast<double>(predicted[i]);
    n += 1, x += said, y += mean, xx += said * said, yy += mean * mean, xy += said * mean;
  }
  return (n * xy - x * y) / std::sqrt((n * xx - x * x) * (n * yy - y * y));
}

TEST(PredictedLengths, CorrelateAsTheyAreSaidTo) {
  PlanningProblem problem = tail_problem(4);
  problem.workload.prompts = 4000;
  problem.workload.response.sigma = 0.3;  // few are cut at one token
  const SampleLengths lengths = draw_lengths(problem.workload, 3);
  for (const double wanted : {0.3, 0.5, 0.9})
    EXPECT_NEAR(correlation_of(lengths, 4, wanted), wanted, 0.05);
  EXPECT_NEAR(correlation_of(lengths, 4, 1), 1, 1e-3);
  const auto nothing = predicted_lengths(lengths, 4, 0, 1);
  EXPECT_EQ(nothing.front(), nothing.back());
}

double generated_s(const PlanningProblem& problem, bool predicted, double correlation,
                   int64_t stated = 16) {
  ExecutionPlan plan = uniform_plan(problem, 8, 1, 1);
  for (CallPlan& call : plan.calls)
    if (call.call == "generate") call.strategy.max_concurrent = stated;
  plan.fusion.predicted_lengths = predicted;
  const auto program = compile(plan, problem);
  EXPECT_TRUE(program.ok()) << program.status().message();
  double out = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SimOptions options;
    options.seed = seed, options.length_correlation = correlation;
    const auto trace = simulate(*program, problem, committed_calibration(), options);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    for (const CallSummary& call : trace->calls)
      if (program->graph.calls[call.call.value].kind == CallKind::kGenerate) out += call.end_s / 4;
  }
  return out;
}

// Engines that run 16 of 64 samples at a time end sooner with the longest first; more so the better
// these are known.
TEST(PredictedLengths, GenerationEndsSooner) {
  for (const int64_t samples : {1, 4}) {
    const PlanningProblem problem = tail_problem(samples);
    const double in_order = generated_s(problem, false, 1), known = generated_s(problem, true, 1),
                 guessed = generated_s(problem, true, 0.5);
    std::printf("%d of a prompt: %.2f s in order, %.2f guessed, %.2f known\n",
                static_cast<int>(samples), in_order, guessed, known);
    EXPECT_LT(known, 0.97 * in_order);
    EXPECT_LT(guessed, in_order);
    EXPECT_LT(known, guessed);
  }
}

// Where the plan does not say how many run at a time, the engine's own limit does.
TEST(PredictedLengths, AnEngineHasItsLimitWithoutAPlans) {
  PlanningProblem problem = tail_problem(1);
  const double stated = generated_s(problem, false, 1), open = generated_s(problem, false, 1, 0);
  problem.max_concurrent = 16;
  EXPECT_EQ(generated_s(problem, false, 1, 0), stated);
  EXPECT_LT(open, stated);
}

}  // namespace
}  // namespace braid::inline sim
