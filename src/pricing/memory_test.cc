// Peak memory calculated by hand, and published tables of the formulas.
#include "pricing/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "pricing/test_cases.h"

namespace braid::inline pricing {
namespace {

using testing::HasSubstr;

// A GPT of about 7.5 billion parameters (ZeRO, arXiv 1910.02054, figure 1).
ModelSize gpt_7b() {
  ModelSize model;
  model.name = "gpt";
  model.layers = 36;
  model.hidden = 4096;
  model.intermediate = 4 * 4096;
  model.heads = model.kv_heads = 32;
  model.head_dim = 128;
  model.vocab = 50304;
  model.tied_embeddings = true;
  model.gated_mlp = false;
  return model;
}

TrainMemoryWork adam_16_bit_gradients() {
  TrainMemoryWork memory;
  memory.optimizer = {2, 12, 2, 0};
  return memory;
}

double state_gigabytes(int zero_stage) {
  TrainLayout layout;
  layout.dp = 64;
  layout.zero_stage = zero_stage;
  TrainStepWork work;
  work.seq_len = 1024;
  work.global_batch = 64;
  const MemoryParts parts =
      train_memory(gpt_7b(), layout, work, adam_16_bit_gradients(), ideal_efficiency());
  return (parts.weights + parts.gradients + parts.optimizer) / 1e9;
}

TEST(Memory, StatesFollowTheZeroPaper) {
  const double parameters = static_cast<double>(total_params(gpt_7b())) / 1e9;
  EXPECT_NEAR(parameters, 7.5, 0.1);
  const double scale = parameters / 7.5;  // the figure has 120, 31.4, 16.6 and 1.9 GB for 7.5e9
  EXPECT_NEAR(state_gigabytes(0), 120 * scale, 0.1);
  EXPECT_NEAR(state_gigabytes(1), 31.4 * scale, 0.1);
  EXPECT_NEAR(state_gigabytes(2), 16.6 * scale, 0.1);
  EXPECT_NEAR(state_gigabytes(3), 1.9 * scale, 0.1);
}

TEST(Memory, ActivationsFollowKorthikanti) {
  // 34 h bytes per token and layer without score matrices, of which 2 h are dropout masks
  // (arXiv 2205.05198, equation 1 and section 4.1).
  const ModelSize model = gpt_7b();
  const double h = 4096;
  EXPECT_DOUBLE_EQ(activation_bytes_per_token(model, LayerKind::kDense, 1, true), 32 * h);
  EXPECT_DOUBLE_EQ(activation_bytes_per_token(model, LayerKind::kDense, 8, true), 32 * h / 8);
  EXPECT_DOUBLE_EQ(activation_bytes_per_token(model, LayerKind::kDense, 8, false),
                   8 * h + 24 * h / 8);
}

TEST(Memory, KeptActivationsByRecomputation) {
  TrainStepWork work;
  work.seq_len = 1000;
  work.micro_batch = work.global_batch = 2;
  const double layer = 2000 * activation_bytes_per_token(toy_model(), LayerKind::kDense, 1, true);
  const auto activations = [&](StatedRecompute recompute) {
    work.recompute = recompute;
    return train_memory(toy_model(), {}, work, adam_16_bit_gradients(), ideal_efficiency())
        .activations;
  };
  // All layers, and half of one more that is being worked on.
  EXPECT_DOUBLE_EQ(activations(StatedRecompute::kNone), 4 * layer + 0.5 * layer);
  // Only the inputs of the four layers.
  EXPECT_DOUBLE_EQ(activations(StatedRecompute::kFull), 4 * 2000.0 * 256 * 2 + 0.5 * layer);
}

TEST(Memory, PipelineStagesHoldTheMicroBatchesInFlight) {
  ModelSize model = toy_model();
  model.vocab = 8;  // no logits to speak of
  TrainStepWork work;
  work.seq_len = 1000;
  work.global_batch = 16;
  TrainLayout layout;
  layout.pp = 4;
  const double layer = 1000 * activation_bytes_per_token(model, LayerKind::kDense, 1, true);
  const MemoryParts parts =
      train_memory(model, layout, work, adam_16_bit_gradients(), ideal_efficiency());
  EXPECT_DOUBLE_EQ(parts.activations, 4 * layer + 0.5 * layer);  // one layer, four in flight
  work.global_batch = 2;
  const MemoryParts few =
      train_memory(model, layout, work, adam_16_bit_gradients(), ideal_efficiency());
  EXPECT_DOUBLE_EQ(few.activations, 2 * layer + 0.5 * layer);
}

TEST(Memory, OffloadedStatesLeaveTheDevice) {
  TrainStepWork work;
  work.seq_len = 100;
  TrainMemoryWork memory = adam_16_bit_gradients();
  memory.offload_optimizer = true;
  MemoryParts parts = train_memory(toy_model(), {}, work, memory, ideal_efficiency());
  EXPECT_EQ(parts.optimizer, 0);
  EXPECT_DOUBLE_EQ(parts.weights, 2.0 * total_params(toy_model()));
  memory.offload_states = true;
  parts = train_memory(toy_model(), {}, work, memory, ideal_efficiency());
  EXPECT_EQ(parts.weights + parts.gradients + parts.optimizer, 0);
}

TEST(Memory, AdaptersNeedStatesForTheirParametersOnly) {
  TrainStepWork work;
  work.seq_len = 100;
  work.lora_rank = 8;
  TrainMemoryWork memory;
  memory.optimizer = {2, 12, 4, 8};
  const MemoryParts parts = train_memory(toy_model(), {}, work, memory, ideal_efficiency());
  const double adapters = static_cast<double>(trainable_params(toy_model(), {true, 8}));
  EXPECT_DOUBLE_EQ(parts.weights, 2.0 * total_params(toy_model()));
  EXPECT_DOUBLE_EQ(parts.gradients, 4 * adapters);
  EXPECT_DOUBLE_EQ(parts.optimizer, 12 * adapters);
}

TEST(Memory, ShardedAdaptersAndEnginesThatKeepGatheredWeights) {
  TrainStepWork work;
  work.seq_len = 100;
  work.global_batch = 4;
  work.lora_rank = 8;
  TrainLayout layout;
  layout.dp = 4;
  layout.zero_stage = 3;
  TrainMemoryWork memory;
  memory.optimizer = {2, 12, 4, 8};
  const Efficiency e = ideal_efficiency();
  const double parameters = static_cast<double>(total_params(toy_model())),
               adapters = static_cast<double>(trainable_params(toy_model(), {true, 8}));
  MemoryParts parts = train_memory(toy_model(), layout, work, memory, e);
  EXPECT_DOUBLE_EQ(parts.weights, 2 * parameters / 4);
  EXPECT_DOUBLE_EQ(parts.gradients, 4 * adapters / 4);
  EXPECT_DOUBLE_EQ(parts.optimizer, 12 * adapters / 4);
  // Two blocks and both ends of the model in 16 bit.
  EXPECT_DOUBLE_EQ(parts.gathered, 2.0 * (2 * (196608 + 393216) + 2 * 256000));
  memory.keeps_gathered = true;
  EXPECT_DOUBLE_EQ(train_memory(toy_model(), layout, work, memory, e).gathered, 2 * parameters);
}

TEST(Memory, LogitsByKindOfLoss) {
  TrainStepWork work;
  work.seq_len = 100;
  TrainMemoryWork memory = adam_16_bit_gradients();
  Efficiency e = ideal_efficiency();
  e.mem_logit_bytes = 6;
  e.mem_logit_eager_bytes = 12;
  const auto logits = [&] { return train_memory(toy_model(), {}, work, memory, e).logits; };
  EXPECT_DOUBLE_EQ(logits(), 100.0 * 1000 * 6);
  memory.policy_loss = true;
  EXPECT_DOUBLE_EQ(logits(), 100.0 * 1000 * 6);
  memory.eager = true;
  EXPECT_DOUBLE_EQ(logits(), 100.0 * 1000 * 20);
  memory.fused_loss = true;
  EXPECT_EQ(logits(), 0);
}

TEST(Memory, GenerationHoldsWeightsAndCache) {
  GenerateWork work;
  work.prompt_len = 1000;
  work.output_len = 200;
  work.concurrency = 8;
  GenerateLayout layout;
  layout.tp = 2;
  const MemoryParts parts = generate_memory(toy_model(), layout, work, ideal_efficiency());
  EXPECT_DOUBLE_EQ(parts.weights, 2.0 * total_params(toy_model()) / 2);
  EXPECT_DOUBLE_EQ(parts.kv_cache, 8 * 1200.0 * (4 * 2 * 2 * 64) * 2 / 2);
  layout.tp = 4;  // two heads of keys and values cannot be cut further
  EXPECT_DOUBLE_EQ(generate_memory(toy_model(), layout, work, ideal_efficiency()).kv_cache,
                   parts.kv_cache);
}

TEST(Memory, PeakIsStatesAndTheLargerOfPassesAndStep) {
  MemoryParts parts;
  parts.weights = 1;
  parts.gradients = 2;
  parts.optimizer = 3;
  parts.fixed = 4;
  parts.activations = 10;
  parts.logits = 5;
  parts.step_buffers = 12;
  EXPECT_EQ(peak_bytes(parts), 25);
  parts.step_buffers = 16;
  EXPECT_EQ(peak_bytes(parts), 26);
}

TEST(Memory, OptimizerDescriptions) {
  EXPECT_EQ(*parse_optimizer_memory("adamw, 32-bit master weights and states"),
            (OptimizerMemory{2, 12, 0, 0}));
  EXPECT_EQ(*parse_optimizer_memory("fused adamw, 16-bit"), (OptimizerMemory{2, 4, 2, 0}));
  EXPECT_EQ(*parse_optimizer_memory("adamw on adapters (rank 8, attention input)"),
            (OptimizerMemory{2, 12, 4, 8}));
  EXPECT_EQ(*parse_optimizer_memory("adamw on adapters, 32-bit base weights"),
            (OptimizerMemory{4, 12, 4, 16}));
  EXPECT_THAT(parse_optimizer_memory("sgd").status().message(), HasSubstr("'sgd'"));
}

TEST(Memory, UncertainWithinFivePercentOfTheLimit) {
  Efficiency e = ideal_efficiency();
  e.mem_context_gib = 1;
  const double device = 81 * kGib;
  EXPECT_DOUBLE_EQ(usable_bytes(device, e), 80 * kGib);
  EXPECT_EQ(judge_fit(75.9 * kGib, device, e), Fit::kYes);
  EXPECT_EQ(judge_fit(76.1 * kGib, device, e), Fit::kUncertain);
  EXPECT_EQ(judge_fit(83.9 * kGib, device, e), Fit::kUncertain);
  EXPECT_EQ(judge_fit(84.1 * kGib, device, e), Fit::kNo);
}

TEST(Memory, ReadingsOfTools) {
  Efficiency e = ideal_efficiency();
  e.mem_reserve_factor = 1.21;
  e.mem_context_gib = 1;
  EXPECT_DOUBLE_EQ(reported_bytes(100 * kGib, MemoryReading::kAllocated, e), 100 * kGib);
  EXPECT_DOUBLE_EQ(reported_bytes(100 * kGib, MemoryReading::kReserved, e), 121 * kGib);
  EXPECT_DOUBLE_EQ(reported_bytes(100 * kGib, MemoryReading::kProcess, e), 122 * kGib);
  EXPECT_DOUBLE_EQ(reported_bytes(100 * kGib, MemoryReading::kUnstated, e), 110.5 * kGib);
}

TEST(Memory, MoreOfAnythingNeverNeedsLess) {
  const ModelSize model = *find_model("llama3-8b");
  const Efficiency e = resolve_efficiency(committed_calibration(), {});
  const auto peak = [&](double micro_batch, double seq_len, int dp, int tp) {
    TrainLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    TrainStepWork work;
    work.micro_batch = micro_batch;
    work.seq_len = seq_len;
    work.global_batch = micro_batch * dp;
    return peak_bytes(train_memory(model, layout, work, adam_16_bit_gradients(), e));
  };
  EXPECT_GT(peak(2, 4096, 8, 1), peak(1, 4096, 8, 1));
  EXPECT_GT(peak(1, 8192, 8, 1), peak(1, 4096, 8, 1));
  EXPECT_LT(peak(1, 4096, 16, 1), peak(1, 4096, 8, 1));
  EXPECT_LT(peak(1, 4096, 8, 2), peak(1, 4096, 8, 1));
}

}  // namespace
}  // namespace braid::inline pricing
