// Every kernel that is written by hand for the CPU against its twin of ATen operators, which other
// devices run: results and gradients, in f32 and bf16. On a GPU with BRAID_TEST_DEVICE=cuda.
#include "nn/kernels/kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/adapter_dropout.h"
#include "nn/kernels/head_rows.h"
#include "nn/kernels/padded_batch.h"
#include "nn/parallel_testing.h"
#include "test_device.h"
#include "train/optimizer.h"

namespace braid {
namespace {

using TensorList = std::vector<at::Tensor>;
// Results of tensors that gradients flow to; other tensors are made on the device.
using Kernel = std::function<TensorList(const TensorList& inputs, at::Device device)>;

// f32 sums in another order, and what rounding the results to bf16 makes of them: 2^-8 a number.
double tolerance_of(at::ScalarType dtype) { return dtype == at::kFloat ? 3e-6 : 6e-3; }

// Results, then gradients by the inputs of a loss that weights every result at random.
TensorList run_kernel(const Kernel& kernel, const TensorList& inputs, at::Device device) {
  TensorList leaves, out;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.clone().to(device).detach().requires_grad_());
  const TensorList results = kernel(leaves, device);
  at::Tensor loss = at::zeros({}, at::TensorOptions(device));
  uint64_t seed = 90;
  for (const at::Tensor& result : results) {
    out.push_back(result.detach().to(at::kCPU));
    loss = loss + (result.to(at::kFloat) * seeded_normal(result.sizes(), seed++).to(device)).sum();
  }
  loss.backward();
  for (const at::Tensor& leaf : leaves) out.push_back(leaf.grad().to(at::kCPU));
  return out;
}

class KernelTwins : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor normal(at::IntArrayRef shape, uint64_t seed) const {
    return seeded_normal(shape, seed).to(GetParam());
  }

  void expect_equal(const TensorList& inputs, const Kernel& kernel) const {
    const at::Device device = tested_device();
    const TensorList expected = run_kernel(kernel, inputs, at::kCPU);
    const TensorList actual = run_kernel(kernel, inputs, device);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(actual[i].scalar_type(), expected[i].scalar_type()) << i;
      EXPECT_EQ(actual[i].sizes(), expected[i].sizes()) << i;
      EXPECT_LE(relative_error(actual[i], expected[i], 0), tolerance_of(GetParam())) << i;
    }
  }
};

TEST_P(KernelTwins, Linear) {
  for (const int64_t rows : {3, 40})
    expect_equal(
        {normal({rows, 24}, 1), normal({16, 24}, 2), normal({16}, 3)},
        [](const TensorList& in, at::Device) { return TensorList{linear(in[0], in[1], in[2])}; });
}

TEST_P(KernelTwins, Norms) {
  const TensorList one = {normal({9, 40}, 1), normal({40}, 2)};
  const TensorList two = {normal({9, 40}, 1), normal({9, 40}, 3), normal({40}, 2)};
  for (const bool offset : {false, true}) {
    expect_equal(one, [&](const TensorList& in, at::Device) {
      return TensorList{rms_norm(in[0], in[1], 1e-6, offset)};
    });
    expect_equal(two, [&](const TensorList& in, at::Device) {
      const NormedSum out = add_rms_norm(in[0], in[1], in[2], 1e-6, offset);
      return TensorList{out.sum_TH, out.normed_TH};
    });
  }
  expect_equal({normal({9, 40}, 1), normal({40}, 2), normal({40}, 3)},
               [](const TensorList& in, at::Device) {
                 return TensorList{layer_norm(in[0], in[1], in[2], 1e-5)};
               });
}

TEST_P(KernelTwins, Activations) {
  for (const Activation kind : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh}) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_equal({normal({7, 48}, 1)}, [&](const TensorList& in, at::Device) {
      return TensorList{gated_activation(in[0], kind)};
    });
    expect_equal({normal({7, 48}, 1)}, [&](const TensorList& in, at::Device) {
      return TensorList{activate(in[0], kind)};
    });
  }
}

TEST_P(KernelTwins, Rotation) {
  RopeSpec rope;
  rope.kind = RopeSpec::Kind::kDefault;
  const at::Tensor table = rope_table(rope, 8, 32), positions = at::arange(11).flip(0);
  expect_equal({normal({11, 3, 8}, 1)}, [&](const TensorList& in, at::Device device) {
    return TensorList{rotate(in[0], table.to(device), positions.to(device))};
  });
  for (const bool rotated : {true, false})
    expect_equal({normal({11, 8 * 8}, 1)}, [&](const TensorList& in, at::Device device) {
      return split_heads(in[0], {4, 2, 8}, rotated ? table.to(device) : at::Tensor(),
                         positions.to(device));
    });
}

TEST_P(KernelTwins, AttentionOfWholeSequences) {
  AttentionBatch plain{{0, 7, 50, 54}, {0, 0, 0}, {}};
  AttentionBatch window = plain, shared{{0, 40, 50, 54}, {0, 35, 7}, {}};
  window.window = 5;
  shared.hosts = {-1, 0, 0};
  for (const AttentionBatch& batch : {plain, window, shared})
    expect_equal({normal({54, 4, 8}, 1), normal({54, 2, 8}, 2), normal({54, 2, 8}, 3)},
                 [&](const TensorList& in, at::Device) {
                   return TensorList{attention(in[0], in[1], in[2], batch, {0.35}, nullptr)};
                 });
}

// Sequences of sizes so different that padding them to one would cost more than several launches.
TEST_P(KernelTwins, AttentionOfShortAndLongSequences) {
  AttentionBatch batch{{0}, {}, {}};
  for (int32_t i = 0; i < 40; ++i)
    batch.query_begin.push_back(batch.query_begin.back() + 1 + i % 5);
  batch.query_begin.push_back(batch.query_begin.back() + 300);
  batch.cached.assign(41, 0);
  const int64_t tokens = batch.query_begin.back();
  EXPECT_GT(padded_batch(batch, at::kCPU, at::kFloat).groups.size(), 1);
  expect_equal({normal({tokens, 2, 8}, 1), normal({tokens, 1, 8}, 2), normal({tokens, 1, 8}, 3)},
               [&](const TensorList& in, at::Device) {
                 return TensorList{attention(in[0], in[1], in[2], batch, {0.35}, nullptr)};
               });
}

// Pages are written and read alike, and attention over them gives the same.
TEST_P(KernelTwins, AttentionOverPages) {
  const at::NoGradGuard no_grad;
  const AttentionBatch filled{{0, 45, 50}, {0, 0}, {{4, 1}, {2}}};
  const AttentionBatch next{{0, 1, 9}, {45, 5}, {{4, 1}, {2}}};
  const auto run = [&](at::Device device) {
    const auto on = [&](const at::Tensor& tensor) { return tensor.to(device); };
    const KvLayer layer = allocate_kv(5, 2, 8, at::TensorOptions(device).dtype(GetParam()));
    store_kv(on(normal({50, 2, 8}, 1)), on(normal({50, 2, 8}, 2)), filled, layer);
    const at::Tensor k = on(normal({9, 2, 8}, 3)), v = on(normal({9, 2, 8}, 4));
    store_kv(k, v, next, layer);
    const KvLayer read = read_kv(layer, {4, 1}, 46);
    return TensorList{attention(on(normal({9, 4, 8}, 5)), k, v, next, {0.35}, &layer).to(at::kCPU),
                      read.keys.to(at::kCPU), read.values.to(at::kCPU)};
  };
  const TensorList expected = run(at::kCPU), actual = run(tested_device());
  EXPECT_LE(relative_error(actual[0], expected[0], 0), tolerance_of(GetParam()));
  EXPECT_TRUE(at::equal(actual[1], expected[1]));
  EXPECT_TRUE(at::equal(actual[2], expected[2]));
}

TEST_P(KernelTwins, Head) {
  const at::Tensor targets = at::arange(30).remainder(23);
  for (const double temperature : {1.0, 0.8})
    for (const bool entropy : {true, false})  // in the loss
      expect_equal({normal({30, 16}, 1), normal({23, 16}, 2)}, [&](const TensorList& in,
                                                                   at::Device device) {
        const HeadOutput out = head_logprobs(in[0], in[1], targets.to(device), {temperature, 8});
        return entropy ? TensorList{out.logprobs_N, out.entropy_N} : TensorList{out.logprobs_N};
      });
}

// The head of a vocabulary that lies on several ranks; targets beyond its ends lie elsewhere.
TEST_P(KernelTwins, HeadOfPartOfTheVocabulary) {
  const at::NoGradGuard no_grad;
  const at::Tensor targets = at::arange(-4, 26);
  const at::Tensor h = normal({30, 16}, 1), w = normal({23, 16}, 2);
  const at::Tensor gradients = seeded_normal({30, 2}, 3);
  at::Tensor statistics = seeded_normal({30, 3}, 4);
  statistics.select(1, 2).add_(20);  // above every logit, as a log of sums is
  const auto run = [&](at::Device device) {
    const HeadGradients back = head_backward({h.to(device),
                                              w.to(device),
                                              targets.to(device),
                                              statistics.to(device),
                                              gradients.to(device),
                                              {0.8, 8}});
    return TensorList{head_partials(h.to(device), w.to(device), targets.to(device), {0.8, 8}),
                      back.h_NH, back.w_UH};
  };
  const TensorList expected = run(at::kCPU), actual = run(tested_device());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LE(relative_error(actual[i].to(at::kCPU), expected[i], 0), tolerance_of(GetParam()))
        << i;
}

TEST_P(KernelTwins, AdapterDropout) {
  const TokenBatch batch = pack_sequences({{1, 2, 3, 4, 5}, {1, 2, 7}}, at::kCPU);
  const AdapterDropout dropout = adapter_dropout(batch, 0.3, 11);
  expect_equal({normal({8, 12}, 1)}, [&](const TensorList& in, at::Device) {
    return TensorList{drop_numbers(dropout, "q_proj", 0, in[0])};
  });
}

TEST_P(KernelTwins, SumOfSquares) {
  const at::Tensor x = seeded_normal({70, 1000}, 1);
  const double expected = sum_of_squares(x);
  EXPECT_NEAR(sum_of_squares(x.to(tested_device())) / expected, 1, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Types, KernelTwins, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return std::string(info.param == at::kFloat ? "f32" : "bf16");
                         });

}  // namespace
}  // namespace braid
