// What `braid profile` measures with, on a device: layers, decoding and memory have times and
// sizes, and the memory of a pass is the CPU's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "batching/cache_pages.h"
#include "models/size.h"
#include "profile/bench.h"
#include "profile/machine.h"
#include "test_device.h"

namespace braid {
namespace {

constexpr const char* kModel = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
 "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
 "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "float32"})";

LayerBench bench_on(at::Device device) {
  return LayerBench::make(*parse_model_spec(kModel, "model"), {device, at::kFloat, 0}).value();
}

TEST(DeviceProfile, LayersAreMeasuredThere) {
  LayerBench layers = bench_on(tested_device());
  EXPECT_GT(layers.forward_s(32, 8), 0);
  EXPECT_GT(layers.train_s(32, 8), 0);
  int rounds = 0;
  EXPECT_GT(layers.decode_s(4, 20, [&] { ++rounds; }), 0);
  EXPECT_GE(rounds, 3);
  // A page for each of 4 sequences; one layer; keys and values of 2 heads.
  EXPECT_EQ(layers.layers(), 1);
  EXPECT_DOUBLE_EQ(layers.cache_bytes(4, 20), 4.0 * kPageTokens * 2 * (2 * 16) * sizeof(float));
}

TEST(DeviceProfile, AGpuThatNobodyPublishedIsWhatWasMeasured) {
  if (tested_device().is_cuda()) GTEST_SKIP() << "the driver names the GPU";
  const GpuSpec gpu = measured_device({tested_device(), at::kBFloat16, 0}, {100, 1000, 20});
  EXPECT_EQ(gpu.key, "this-gpu");
  EXPECT_EQ(gpu.bf16_tflops, 100);
  EXPECT_EQ(gpu.hbm_gbytes_per_s, 1000);
  EXPECT_EQ(gpu.pcie_gbytes_per_s, 20);
  EXPECT_THAT(gpu.source, testing::HasSubstr("measured by braid profile"));
}

}  // namespace
}  // namespace braid
