#include "nn/kernels/decode_step.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "nn/kernels/panels.h"

namespace braid::inline nn {
namespace {

using at::Tensor;

struct StepCase {
  HeadLayout layout;
  int64_t hidden, inner, window;
  Activation activation;
  bool bias;
  std::vector<int32_t> cached;
  double soft_cap = 0;
};

constexpr double kEps = 1e-5;
constexpr int64_t kLayers = 2;

class DecodeStepTest : public testing::TestWithParam<StepCase> {
 protected:
  void SetUp() override {
    if (panels::simd_for(at::kFloat) == panels::Simd::kNone)
      GTEST_SKIP() << "this processor has no GEMMs of the type";
    at::manual_seed(3);
    const StepCase& c = GetParam();
    const int64_t heads = c.layout.heads, kv_heads = c.layout.kv_heads, depth = c.layout.head_dim;
    options_ = {c.layout, kEps, {0.3, c.soft_cap}, c.activation, rope_table({}, depth, 512)};
    for (int64_t i = 0; i < kLayers; ++i) {
      layers_.push_back({at::randn({c.hidden}), at::randn({c.hidden}),
                         matrix((heads + 2 * kv_heads) * depth, c.hidden),
                         matrix(c.hidden, heads * depth), matrix(2 * c.inner, c.hidden),
                         matrix(c.hidden, c.inner)});
    }
    batch_.window = c.window;
    batch_.query_begin = {0};
    batch_.cached = c.cached;
    int32_t page = 0;
    for (const int32_t cached : c.cached) {
      batch_.query_begin.push_back(batch_.query_begin.back() + 1);
      batch_.page_tables.emplace_back();
      for (int64_t p = 0; p <= cached / kPageTokens; ++p)
        batch_.page_tables.back().push_back(page++);
    }
    const std::vector<int64_t> positions(c.cached.begin(), c.cached.end());
    positions_ = at::tensor(positions, at::kLong);
    h_ = at::randn({static_cast<int64_t>(c.cached.size()), c.hidden});
  }
  void TearDown() override { at::set_num_threads(2); }

  StepMatrix matrix(int64_t out, int64_t in) const {
    return {panels::pack(at::randn({out, in}) / std::sqrt(static_cast<double>(in))),
            GetParam().bias ? at::randn({out}) : Tensor()};
  }
  // The same random pages for every call.
  std::vector<KvLayer> pages() const {
    at::manual_seed(5);
    std::vector<KvLayer> kv;
    const HeadLayout& layout = options_.layout;
    for (int64_t i = 0; i < kLayers; ++i) {
      kv.push_back(allocate_kv(page_count(batch_), layout.kv_heads, layout.head_dim, h_.options()));
      kv.back().keys.normal_();
      kv.back().values.normal_();
    }
    return kv;
  }
  // The layers by the kernels over whole tensors.
  Tensor composed(const std::vector<KvLayer>& kv) const {
    const auto apply = [](const StepMatrix& m, const Tensor& x) {
      return panels::gemm(x, m.packed, m.bias, panels::simd_for(at::kFloat));
    };
    Tensor h = h_;
    for (int64_t i = 0; i < kLayers; ++i) {
      const StepLayer& layer = layers_[i];
      const Tensor x = rms_norm(h, layer.attention_norm_H, kEps, false);
      const auto qkv = split_heads(apply(layer.qkv, x), options_.layout, options_.rope, positions_);
      store_kv(qkv[1], qkv[2], batch_, kv[i]);
      const Tensor mixed = attention(qkv[0], qkv[1], qkv[2], batch_, options_.scores, &kv[i]);
      const NormedSum sum =
          add_rms_norm(h, apply(layer.output, mixed.flatten(1)), layer.mlp_norm_H, kEps, false);
      const Tensor active = gated_activation(apply(layer.up, sum.normed_TH), options_.activation);
      h = sum.sum_TH + apply(layer.down, active);
    }
    return h;
  }

  at::NoGradGuard no_grad_;
  StepOptions options_;
  std::vector<StepLayer> layers_;
  AttentionBatch batch_;
  Tensor positions_, h_;
};

TEST_P(DecodeStepTest, GivesTheBitsOfTheKernelsOverWholeTensors) {
  ASSERT_TRUE(can_decode_step(options_, batch_));
  const std::vector<KvLayer> expected_kv = pages();
  const Tensor expected = composed(expected_kv);
  ASSERT_TRUE(expected.isfinite().all().item<bool>());
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const std::vector<KvLayer> kv = pages();
    EXPECT_TRUE(at::equal(decode_step(h_, positions_, layers_, kv, batch_, options_), expected))
        << threads << " threads";
    for (int64_t i = 0; i < kLayers; ++i) {
      EXPECT_TRUE(at::equal(kv[i].keys, expected_kv[i].keys)) << "layer " << i;
      EXPECT_TRUE(at::equal(kv[i].values, expected_kv[i].values)) << "layer " << i;
    }
  }
}

TEST_P(DecodeStepTest, ServesNoBatchWithSeveralTokensOfASequence) {
  AttentionBatch longer = batch_;
  for (size_t i = 1; i < longer.query_begin.size(); ++i) longer.query_begin[i] += 1;
  EXPECT_FALSE(can_decode_step(options_, longer));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DecodeStepTest,
    testing::Values(
        StepCase{{4, 2, 16}, 48, 40, 0, Activation::kSilu, false, {0}},
        StepCase{{8, 4, 64}, 96, 72, 0, Activation::kSilu, true, {31, 32, 63, 64, 200}},
        StepCase{{6, 2, 32}, 64, 96, 50, Activation::kGeluTanh, false, {5, 49, 50, 130}, 0.4},
        StepCase{{8, 1, 48},
                 80,
                 33,
                 0,
                 Activation::kSilu,
                 true,
                 {0, 1, 2, 3, 4, 5, 6, 7, 8, 95, 96, 97, 98}}));

}  // namespace
}  // namespace braid::inline nn
