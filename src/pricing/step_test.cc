// Training steps, inference passes and generation jobs composed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pricing/test_cases.h"

namespace braid::inline pricing {
namespace {

using testing::HasSubstr;

LayerPass step_pass() {
  LayerPass pass;
  pass.tokens = 1000;
  pass.context = 250;  // causal: half of 500 tokens
  return pass;
}

TEST(TrainStep, OneDevice) {
  TrainStepWork work;
  work.micro_batch = 2;
  work.global_batch = 8;
  work.seq_len = 500;
  TrainLayout layout;
  layout.zero_stage = 0;
  const DeviceModel device = toy_device();
  const LayerPass pass = step_pass();
  const double layer =
      layer_forward_s(toy_model(), pass, device) + layer_backward_s(toy_model(), pass, device);
  const double ends = embedding_forward_s(toy_model(), 1000, device) +
                      embedding_backward_s(toy_model(), 1000, false, device) +
                      head_forward_s(toy_model(), 1000, 1, device) +
                      head_backward_s(toy_model(), 1000, 1, false, device);
  const TrainTime time = train_step_time(toy_model(), layout, work, device);
  EXPECT_NEAR(time.compute_s, 4 * (4 * layer + ends), 1e-12);
  EXPECT_NEAR(time.optimizer_s, total_params(toy_model()) * 28.0 / 1e12, 1e-12);
  EXPECT_EQ(time.bubble_s + time.exchange_s + time.gradient_s, 0);
  EXPECT_DOUBLE_EQ(time.total_s, time.compute_s + time.optimizer_s);
}

TEST(TrainStep, FullRecomputationAddsOneForwardPass) {
  TrainStepWork work;
  work.seq_len = 500;
  work.micro_batch = work.global_batch = 2;
  const TrainTime kept = train_step_time(toy_model(), {}, work, toy_device());
  work.recompute = StatedRecompute::kFull;
  const TrainTime repeated = train_step_time(toy_model(), {}, work, toy_device());
  const LayerPass pass = step_pass();
  EXPECT_NEAR(repeated.compute_s - kept.compute_s,
              4 * layer_forward_s(toy_model(), pass, toy_device()), 1e-12);
}

TEST(TrainStep, BubbleIsThePipelinesFillAndDrain) {
  TrainStepWork work;
  work.micro_batch = 1;
  work.global_batch = 8;
  work.seq_len = 1000;
  DeviceModel device = toy_device();
  device.efficiency.pp_exposed = 0;
  device.efficiency.head_factor = 0;  // stages are then equal, activations being free
  device.efficiency.stream_share = 1e9;
  TrainLayout layout;
  layout.pp = 4;
  const TrainTime plain = train_step_time(toy_model(), layout, work, device);
  EXPECT_NEAR(plain.bubble_s / plain.compute_s, 3.0 / 8, 1e-9);  // (pp - 1) / micro-batches
  layout.pp = 2;
  layout.vpp = 2;
  const TrainTime fused = train_step_time(toy_model(), layout, work, device);
  EXPECT_NEAR(fused.bubble_s / fused.compute_s, 1.0 / 2 / 8, 1e-9);
}

TEST(TrainStep, ShardedWeightsAreGatheredInEveryMicroBatch) {
  TrainStepWork work;
  work.micro_batch = 1;
  work.global_batch = 16;
  work.seq_len = 8;  // hardly any computation to hide behind
  TrainLayout layout;
  layout.dp = 8;
  layout.gpus_per_node = 8;
  layout.zero_stage = 3;
  const DeviceModel device = toy_device();
  const double parameters = static_cast<double>(total_params(toy_model()));
  const double wire = parameters * 7 / 8 / 100e9;
  const TrainTime time = train_step_time(toy_model(), layout, work, device);
  // Two gathers of 2 bytes and a reduction of 4 bytes per parameter, exposed in full.
  EXPECT_NEAR(time.gradient_s, 2 * (2 * 2 + 4) * wire, 1e-12);
  EXPECT_NEAR(time.optimizer_s, parameters / 8 * 28 / 1e12, 1e-15);
}

TEST(TrainStep, RejectsWhatDoesNotFit) {
  TrainLayout layout;
  TrainStepWork work;
  EXPECT_THAT(validate_train(toy_model(), layout, work).message(), HasSubstr("seq_len"));
  work.seq_len = 100;
  layout.pp = 8;
  EXPECT_EQ(validate_train(toy_model(), layout, work).message(), "pp 8 exceeds the 4 layers");
  layout.pp = 1;
  layout.ep = 2;
  EXPECT_THAT(validate_train(toy_model(), layout, work).message(), HasSubstr("experts"));
  layout.ep = 1;
  work.micro_batch = 0;
  EXPECT_THAT(validate_train(toy_model(), layout, work).message(), HasSubstr("above 0"));
}

TEST(InferencePass, IsTheForwardHalf) {
  TrainStepWork work;
  work.micro_batch = 2;
  work.global_batch = 8;
  work.seq_len = 500;
  const LayerPass pass = step_pass();
  const double expected = 4 * (4 * layer_forward_s(toy_model(), pass, toy_device()) +
                               embedding_forward_s(toy_model(), 1000, toy_device()) +
                               head_forward_s(toy_model(), 1000, 1, toy_device()));
  EXPECT_NEAR(inference_pass_s(toy_model(), {}, work, toy_device()), expected, 1e-12);
}

// Frozen base weights are gathered as whole as trained ones.
TEST(InferencePass, GathersAllWeightsWhateverIsTrained) {
  TrainLayout layout;
  layout.dp = 4, layout.zero_stage = 3, layout.gpus_per_node = 4;
  TrainStepWork work;
  work.global_batch = 4, work.seq_len = 8;  // so few tokens that gathers take longest
  DeviceModel device = toy_device();
  device.efficiency.lora_factor = 1;
  const double whole = inference_pass_s(toy_model(), layout, work, device);
  TrainLayout alone = layout;
  alone.zero_stage = 1;
  ASSERT_GT(whole, inference_pass_s(toy_model(), alone, work, device));
  work.lora_rank = 8;
  EXPECT_DOUBLE_EQ(inference_pass_s(toy_model(), layout, work, device), whole);
}

TEST(TrainStep, OptimizerStepsGrowWithTheRankOfAdapters) {
  TrainStepWork work;
  work.global_batch = 1, work.seq_len = 100;
  const auto optimizer_s = [&](double rank) {
    work.lora_rank = rank;
    return train_step_time(toy_model(), {}, work, toy_device()).optimizer_s;
  };
  EXPECT_NEAR(optimizer_s(32), 4 * optimizer_s(8), 1e-9 * optimizer_s(32));
  EXPECT_LT(optimizer_s(32), optimizer_s(0));
}

TEST(Generate, SteadyStreamIsPrefillPlusDecodeSteps) {
  GenerateWork work;
  work.prompt_len = 100;
  work.output_len = 50;
  work.concurrency = 8;
  const DeviceModel device = toy_device();
  const auto time = generate_time(toy_model(), work, {}, device);
  ASSERT_TRUE(time.ok()) << time.status().message();
  DecodeStep step;
  step.sequences = 8;
  step.context = 125;  // prompt and half of the response
  EXPECT_NEAR(time->decode_s, 50 * decode_step_s(toy_model(), step, device), 1e-12);
  EXPECT_NEAR(time->prefill_s, prefill_s(toy_model(), 800, 100, 1, device), 1e-15);
  EXPECT_NEAR(time->tokens_per_s, 8 * 50 / time->total_s, 1e-6);
  EXPECT_EQ(time->sequences, 8);
}

TEST(Generate, LongTailsTakeLongerThanEvenLengths) {
  GenerateWork work;
  work.prompt_len = 100;
  work.output_len = 500;
  work.max_output_len = 4000;
  work.requests = 64;
  const auto even = generate_time(toy_model(), work, {}, toy_device());
  work.length_spread = 0.8;
  const auto spread = generate_time(toy_model(), work, {}, toy_device());
  ASSERT_TRUE(even.ok() && spread.ok());
  EXPECT_GT(spread->total_s, even->total_s);
}

TEST(Generate, WeightsThatDoNotFitAreInfeasible) {
  GpuSpec gpu = toy_gpu();
  gpu.hbm_bytes = 1e6;
  GenerateWork work;
  work.prompt_len = work.output_len = 10;
  DeviceModel device = toy_device();
  device.gpu = gpu;
  const auto time = generate_time(toy_model(), work, {}, device);
  EXPECT_EQ(time.status().code(), Code::kInfeasible);
  EXPECT_EQ(time.status().message(), "weights and the cache of one sequence do not fit on 1 x toy");
}

TEST(Generate, LongerShareIsTheLognormalTail) {
  EXPECT_EQ(longer_share(10, 20, 0), 1);
  EXPECT_EQ(longer_share(30, 20, 0), 0);
  // The median of a lognormal of mean m and sigma s is m exp(-s^2/2).
  EXPECT_NEAR(longer_share(20 * std::exp(-0.5), 20, 1), 0.5, 1e-12);
}

}  // namespace
}  // namespace braid::inline pricing
