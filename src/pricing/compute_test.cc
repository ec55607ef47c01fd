// Prices of layers, heads and decode steps calculated by hand.
#include "pricing/compute.h"

#include <gtest/gtest.h>

#include <cmath>

#include "pricing/rl_engine.h"
#include "pricing/test_cases.h"

namespace braid::inline pricing {
namespace {

LayerPass toy_pass() {
  LayerPass pass;
  pass.tokens = 1000;
  pass.context = 500;
  return pass;
}

// 2 operations per parameter and token at 100 TFLOP/s.
constexpr double kGemmsS = 2.0 * (196608 + 393216) * 1000 / 1e14;
// Scores and values: 4 x width x context per token; heads of width 64 reach sqrt(1/2).
const double kScoresS = 4.0 * 256 * 500 * 1000 / (std::sqrt(0.5) * 1e14);
// The three MLP activations in 16 bit at 1000 GB/s.
constexpr double kStreamsS = 3.0 * 512 * 1000 * 2 / 1e12;

TEST(Layer, ForwardIsGemmsScoresAndStreams) {
  EXPECT_NEAR(layer_forward_s(toy_model(), toy_pass(), toy_device()),
              kGemmsS + kScoresS + kStreamsS, 1e-12);
}

TEST(Layer, BackwardIsTwiceTheGemmsAndFiveGemmsOfScores) {
  EXPECT_NEAR(layer_backward_s(toy_model(), toy_pass(), toy_device()),
              2 * kGemmsS + 2.5 * kScoresS + 2 * kStreamsS, 1e-12);
  LayerPass frozen = toy_pass();
  frozen.frozen = true;
  EXPECT_NEAR(layer_backward_s(toy_model(), frozen, toy_device()),
              kGemmsS + 2.5 * kScoresS + 2 * kStreamsS, 1e-12);
}

TEST(Layer, TensorParallelismDividesWork) {
  LayerPass pass = toy_pass();
  pass.tp = 4;
  EXPECT_NEAR(layer_forward_s(toy_model(), pass, toy_device()),
              (kGemmsS + kScoresS + kStreamsS) / 4, 1e-12);
}

TEST(Layer, AdditionsReadTwoNumbersAndWriteOne) {
  DeviceModel device = toy_device();
  device.efficiency.stream_share = 0.5;
  const double rate = device.gpu.hbm_gbytes_per_s * 1e9 * 0.5;
  EXPECT_DOUBLE_EQ(additions_s(8e9, 4, device), 3 * 8e9 * 3 / 4 / rate);
  EXPECT_EQ(additions_s(8e9, 1, device), 0);
}

TEST(Layer, NarrowShapesReachLess) {
  DeviceModel device = toy_device();
  device.efficiency.matmul_half_width = 100;
  // Narrowest width 256 for attention and the MLP, 1000 rows.
  const double slower = 1 + 100.0 * (1.0 / 256 + 1.0 / 1000);
  EXPECT_NEAR(layer_forward_s(toy_model(), toy_pass(), device),
              kGemmsS * slower + kScoresS + kStreamsS, 1e-12);
}

TEST(Layer, NeverFasterThanTheHostLaunches) {
  DeviceModel device = toy_device();
  device.efficiency.layer_host_us = 1000;
  device.efficiency.eager_host_us = 4000;
  LayerPass pass = toy_pass();
  EXPECT_NEAR(layer_forward_s(toy_model(), pass, device), 1e-3, 1e-6);
  pass.graphs = false;
  EXPECT_NEAR(layer_forward_s(toy_model(), pass, device), 4e-3, 1e-6);
  EXPECT_NEAR(layer_backward_s(toy_model(), pass, device), 8e-3, 1e-6);
}

TEST(Layer, SinglePrecisionHalvesTheRateAndDoublesTheBytes) {
  DeviceModel device = toy_device();
  device.precision = Precision::kF32;
  EXPECT_NEAR(layer_forward_s(toy_model(), toy_pass(), device),
              2 * (kGemmsS + kScoresS + kStreamsS), 1e-12);
  device.gpu.architecture = "cpu";  // its one peak is that of single precision
  EXPECT_NEAR(layer_forward_s(toy_model(), toy_pass(), device), kGemmsS + kScoresS + 2 * kStreamsS,
              1e-12);
}

TEST(Layer, ExpertsComputeRoutedTokens) {
  ModelSize model = toy_model();
  model.experts = 8;
  model.top_k = 2;
  model.expert_intermediate = 128;
  LayerPass pass = toy_pass();
  pass.kind = LayerKind::kMoe;
  const double attention = 2.0 * 196608 * 1000 / 1e14;
  const double experts = 2.0 * (3 * 256 * 128) * 2000 / 1e14;
  const double streams = 3.0 * (2 * 128) * 1000 * 2 / 1e12;
  EXPECT_NEAR(layer_forward_s(model, pass, toy_device()), attention + kScoresS + experts + streams,
              1e-12);
  DeviceModel device = toy_device();
  device.efficiency.expert_loop_us = 100;
  pass.loops_experts = true;
  EXPECT_NEAR(layer_forward_s(model, pass, device), 8 * 1e-4, 1e-6);
}

TEST(Layer, MoreWorkNeverTakesLess) {
  const auto gpu = find_gpu("a100-80g");
  const auto device = make_device(*gpu, Precision::kBf16, "", committed_calibration());
  const auto model = find_model("llama3-8b");
  ASSERT_TRUE(device.ok() && model.ok());
  double before = 0;
  for (double tokens = 1; tokens < 1e6; tokens *= 2) {
    LayerPass pass;
    pass.tokens = tokens;
    pass.context = 1024;
    const double seconds = layer_forward_s(*model, pass, *device);
    EXPECT_GE(seconds, before) << tokens;
    pass.context = 2048;
    EXPECT_GE(layer_forward_s(*model, pass, *device), seconds) << tokens;
    EXPECT_GT(layer_backward_s(*model, pass, *device), seconds) << tokens;
    before = seconds;
  }
}

TEST(Layer, AProfileReplacesTheRoofline) {
  Profile profile;
  profile.layers = {{ProfileOp::kLayerForward, layer_shape(toy_model()), 1, 100, 0, 0.5},
                    {ProfileOp::kLayerForward, layer_shape(toy_model()), 1, 300, 0, 0.9},
                    {ProfileOp::kHeadForward, layer_shape(toy_model()), 1, 100, 0, 0.25},
                    {ProfileOp::kOptimizer, layer_shape(toy_model()), 1, 1e6, 0, 0.125}};
  DeviceModel device = toy_device();
  device.profile = &profile;
  LayerPass pass = toy_pass();
  pass.tokens = 200;
  EXPECT_DOUBLE_EQ(layer_forward_s(toy_model(), pass, device), 0.7);
  EXPECT_DOUBLE_EQ(head_forward_s(toy_model(), 400, 1, device), 1.0);
  EXPECT_DOUBLE_EQ(optimizer_s(2e6, 28, device), 0.25);
  // Not measured: the roofline still holds.
  EXPECT_DOUBLE_EQ(layer_backward_s(toy_model(), pass, device),
                   layer_backward_s(toy_model(), pass, toy_device()));
  ModelSize other = toy_model();
  other.intermediate = 1024;
  EXPECT_DOUBLE_EQ(layer_forward_s(other, pass, device),
                   layer_forward_s(other, pass, toy_device()));
}

// A profile measures passes with weight gradients; frozen weights need half of the GEMMs.
TEST(Layer, FrozenWeightsTakeTheirShareOfAMeasuredBackward) {
  Profile profile;
  profile.layers = {{ProfileOp::kLayerBackward, layer_shape(toy_model()), 1, 100, 0, 0.5},
                    {ProfileOp::kHeadBackward, layer_shape(toy_model()), 1, 100, 0, 0.25}};
  DeviceModel device = toy_device();
  LayerPass pass = toy_pass();
  pass.tokens = 100;
  const double whole = layer_backward_s(toy_model(), pass, device);
  pass.frozen = true;
  const double share = layer_backward_s(toy_model(), pass, device) / whole;
  ASSERT_LT(share, 1);
  device.profile = &profile;
  EXPECT_DOUBLE_EQ(layer_backward_s(toy_model(), pass, device), 0.5 * share);
  EXPECT_DOUBLE_EQ(head_backward_s(toy_model(), 100, 1, true, device), 0.125);
  pass.frozen = false;
  EXPECT_DOUBLE_EQ(layer_backward_s(toy_model(), pass, device), 0.5);
}

TEST(Exchange, AProfileReplacesTheFormula) {
  const CollectiveGroup two = make_group(toy_gpu(), 2, 1, 8, 0),
                        four = make_group(toy_gpu(), 4, 1, 8, 0);
  Profile profile;
  profile.collectives = {{"all_reduce", 2, true, 1e6, 0.5}};
  DeviceModel device = toy_device();
  device.profile = &profile;
  EXPECT_DOUBLE_EQ(exchange_s(CollectiveOp::kAllReduce, 1e6, two, device), 0.5);
  EXPECT_DOUBLE_EQ(exchange_s(CollectiveOp::kAllReduce, 1e6, four, device),
                   collective_s(CollectiveOp::kAllReduce, 1e6, four, device.efficiency));
  EXPECT_DOUBLE_EQ(exchange_s(CollectiveOp::kAllGather, 1e6, two, device),
                   collective_s(CollectiveOp::kAllGather, 1e6, two, device.efficiency));
}

TEST(Head, ForwardAndBackward) {
  const double gemms = 2.0 * 256 * 1000 * 1000 / 1e14;
  EXPECT_NEAR(head_forward_s(toy_model(), 1000, 1, toy_device()), gemms, 1e-15);
  EXPECT_NEAR(head_backward_s(toy_model(), 1000, 1, false, toy_device()), 2 * gemms, 1e-15);
  EXPECT_NEAR(head_backward_s(toy_model(), 1000, 1, true, toy_device()), gemms, 1e-15);
  EXPECT_NEAR(head_forward_s(toy_model(), 1000, 4, toy_device()), gemms / 4, 1e-15);
}

// Rows in and activations out; backward reads gradients and adds them to the table's rows.
TEST(Embedding, IsBoundByMemory) {
  const double pass = 1000.0 * 256 * 2 / 1e12;
  EXPECT_DOUBLE_EQ(embedding_forward_s(toy_model(), 1000, toy_device()), 2 * pass);
  EXPECT_DOUBLE_EQ(embedding_backward_s(toy_model(), 1000, false, toy_device()), 3 * pass);
  EXPECT_DOUBLE_EQ(embedding_backward_s(toy_model(), 1000, true, toy_device()), 0);
}

TEST(Optimizer, IsBoundByMemory) {
  EXPECT_DOUBLE_EQ(optimizer_s(1e9, 28, toy_device()), 28e9 / 1e12);
}

TEST(HostLink, BytesAtTheLinksShare) {
  Efficiency e = ideal_efficiency();
  e.pcie_share = 0.5;
  DeviceModel device = toy_device();
  device.efficiency = e;
  EXPECT_DOUBLE_EQ(host_copy_s(1e9, device), 0.1);
}

DecodeStep toy_step() {
  DecodeStep step;
  step.sequences = 8;
  step.context = 1000;
  return step;
}

TEST(Decode, WeightsPlusCache) {
  const double parameters = 4.0 * (196608 + 393216) + 256 * 1000;
  const double weights = 2 * parameters / 1e12, gemms = 2 * parameters * 8 / 1e14;
  const double cache = 8.0 * 1000 * (4 * 2 * 2 * 64) * 2 / 1e12;
  const double limit = std::pow(std::pow(weights, 4) + std::pow(gemms, 4), 0.25);
  EXPECT_NEAR(decode_step_s(toy_model(), toy_step(), toy_device()), limit + cache, 1e-12);
}

TEST(Decode, LatenciesOfLayersReducesAndHost) {
  const double bare = decode_step_s(toy_model(), toy_step(), toy_device());
  DeviceModel device = toy_device();
  device.efficiency.decode_layer_us = 10;
  device.efficiency.decode_host_us = 500;
  device.efficiency.decode_sequence_us = 7;
  device.efficiency.decode_reduce_us = 20;
  EXPECT_NEAR(decode_step_s(toy_model(), toy_step(), device) - bare, (4 * 10 + 500 + 8 * 7) * 1e-6,
              1e-12);
  DecodeStep two = toy_step();
  two.tp = 2;
  const double two_bare = decode_step_s(toy_model(), two, toy_device());
  EXPECT_NEAR(decode_step_s(toy_model(), two, device) - two_bare,
              (4 * 10 + 500 + 8 * 7 + 2 * 4 * 20) * 1e-6, 1e-12);
}

TEST(Decode, GrowsWithBatchAndContextAndShrinksWithDevices) {
  const auto model = find_model("llama3-70b");
  const auto gpu = find_gpu("h100-80g");
  const auto device = make_device(*gpu, Precision::kBf16, "vllm", committed_calibration());
  double before = 0;
  for (double sequences = 1; sequences < 2000; sequences *= 2) {
    DecodeStep step;
    step.sequences = sequences;
    step.context = 512;
    step.tp = 4;
    const double seconds = decode_step_s(*model, step, *device);
    EXPECT_GT(seconds, before);
    before = seconds;
    step.context = 4096;
    EXPECT_GT(decode_step_s(*model, step, *device), seconds);
    step.context = 512;
    step.tp = 2;
    EXPECT_GT(decode_step_s(*model, step, *device), seconds);
  }
}

TEST(Decode, AProfileReplacesTheLayers) {
  Profile profile;
  profile.layers = {{ProfileOp::kLayerDecode, layer_shape(toy_model()), 1, 8, 1000, 0.01},
                    {ProfileOp::kHeadForward, layer_shape(toy_model()), 1, 8, 0, 0.002}};
  DeviceModel device = toy_device();
  device.profile = &profile;
  EXPECT_DOUBLE_EQ(decode_step_s(toy_model(), toy_step(), device), 4 * 0.01 + 0.002);
  profile.layers.pop_back();  // the head is computed then
  EXPECT_DOUBLE_EQ(decode_step_s(toy_model(), toy_step(), device),
                   4 * 0.01 + head_forward_s(toy_model(), toy_step().sequences, 1, device));
}

// Measured RL steps name the engine that generates; their factors are found again under it.
TEST(Efficiency, FactorsOfRlStepsAreThoseOfTheEngineThatGenerates) {
  const Calibration& calibration = committed_calibration();
  const GpuSpec gpu = *find_gpu("h100-80g");
  const auto of = [&](const std::string& engine, const std::string& rl_engine) {
    return resolve_efficiency(calibration, efficiency_key(gpu, Precision::kBf16, engine),
                              rl_engine);
  };
  const Efficiency trains = of("megatron", ""), both = of("megatron", "vllm"),
                   served = of("vllm", "");
  EXPECT_EQ(both.rl_train_factor, served.rl_train_factor);
  EXPECT_EQ(both.rl_infer_factor, served.rl_infer_factor);
  EXPECT_EQ(both.rl_step_host_s, served.rl_step_host_s);
  EXPECT_EQ(both.matmul_share, trains.matmul_share);
  EXPECT_EQ(both.dp_exposed, trains.dp_exposed);
  EXPECT_LT(both.rl_train_factor, trains.rl_train_factor);
}

}  // namespace
}  // namespace braid::inline pricing
