#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/triu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include "base/text.h"
#include "device/tensor_memory.h"
#include "nn/kernels/choice.h"
#include "nn/kernels/kernels.h"

namespace braid::inline nn {
namespace {

using at::Tensor;

class KernelTest : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(2); }
};

Tensor leaf(at::IntArrayRef shape) { return at::randn(shape).requires_grad_(true); }
std::vector<Tensor> gradients(const Tensor& y, const Tensor& weights,
                              const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({(y * weights.to(y.scalar_type())).sum()}, inputs);
}

// Relative L2 distance of a result to its f64 reference.
double distance(const Tensor& value, const Tensor& reference) {
  const Tensor wide = value.detach().to(at::kDouble), ref = reference.detach().to(at::kDouble);
  return ((wide - ref).norm() / (ref.norm() + 1e-30)).item<double>();
}

// Naive attention in f64, one sequence and head at a time.
Tensor reference_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                           const AttentionBatch& batch, double scale) {
  std::vector<Tensor> outputs;
  const int64_t group = q.size(1) / k.size(1);
  for (size_t s = 0; s + 1 < batch.query_begin.size(); ++s) {
    const int64_t begin = batch.query_begin[s], length = batch.query_begin[s + 1] - begin;
    std::vector<Tensor> heads;
    for (int64_t h = 0; h < q.size(1); ++h) {
      const Tensor qs = q.narrow(0, begin, length).select(1, h);
      const Tensor ks = k.narrow(0, begin, length).select(1, h / group);
      const Tensor vs = v.narrow(0, begin, length).select(1, h / group);
      Tensor scores = at::matmul(qs, ks.t()) * scale;
      const Tensor row = at::arange(length).unsqueeze(1), column = at::arange(length).unsqueeze(0);
      Tensor hidden = column > row;
      if (batch.window > 0) hidden = hidden.logical_or(column <= row - batch.window);
      heads.push_back(at::matmul(at::softmax(scores.masked_fill(hidden, -1e300), 1), vs));
    }
    outputs.push_back(at::stack(heads, 1));
  }
  return at::cat(outputs, 0);
}

struct AttentionCase {
  int64_t heads, kv_heads, depth, window;
};

class AttentionTest : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionTest, ForwardAndBackwardMatchF64) {
  const AttentionCase p = GetParam();
  AttentionBatch batch;
  batch.query_begin = {0, 5, 6, 76, 140};
  batch.cached = {0, 0, 0, 0};
  batch.window = p.window;
  const double scale = 1 / std::sqrt(static_cast<double>(p.depth));
  const Tensor q = leaf({140, p.heads, p.depth}), k = leaf({140, p.kv_heads, p.depth}),
               v = leaf({140, p.kv_heads, p.depth});
  const Tensor y = attention(q, k, v, batch, {scale}, nullptr);
  const Tensor q64 = q.detach().to(at::kDouble).requires_grad_(true),
               k64 = k.detach().to(at::kDouble).requires_grad_(true),
               v64 = v.detach().to(at::kDouble).requires_grad_(true);
  const Tensor y64 = reference_attention(q64, k64, v64, batch, scale);
  EXPECT_LT(distance(y, y64), 1e-6);
  const Tensor weights = at::randn(y.sizes());
  const auto grads = gradients(y, weights, {q, k, v}),
             grads64 = gradients(y64, weights, {q64, k64, v64});
  const Tensor composed = attention_by_operators(q, k, v, batch, {scale}, nullptr);
  EXPECT_LT(distance(composed, y64), 1e-6);
  const auto composed_grads = gradients(composed, weights, {q, k, v});
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(distance(grads[i], grads64[i]), 2e-6) << "gradient of input " << i;
    EXPECT_LT(distance(composed_grads[i], grads64[i]), 2e-6) << "operators, gradient " << i;
  }
}

// Rows of the packed batch that make up its whole sequences, and where among these its own rows
// are.
struct Unshared {
  AttentionBatch batch;
  Tensor rows, own;
};

Unshared unshared(const AttentionBatch& shared) {
  Unshared out;
  std::vector<int64_t> rows, own;
  out.batch.query_begin = {0};
  out.batch.window = shared.window;
  for (int64_t s = 0; s < static_cast<int64_t>(shared.cached.size()); ++s) {
    for (int32_t i = 0; i < shared.cached[s]; ++i)
      rows.push_back(shared.query_begin[shared.host(s)] + i);
    for (int32_t row = shared.query_begin[s]; row < shared.query_begin[s + 1]; ++row) {
      own.push_back(static_cast<int64_t>(rows.size()));
      rows.push_back(row);
    }
    out.batch.query_begin.push_back(static_cast<int32_t>(rows.size()));
    out.batch.cached.push_back(0);
  }
  out.rows = at::tensor(rows, at::kLong);
  out.own = at::tensor(own, at::kLong);
  return out;
}

// Starts within a page, at its end, over several pages, and a sequence that is nothing else.
TEST_P(AttentionTest, SharedStartsEqualWholeSequences) {
  const AttentionCase p = GetParam();
  AttentionBatch batch;
  batch.query_begin = {0, 75, 95, 128, 137, 140, 140};
  batch.cached = {0, 40, 64, 0, 5, 33};
  batch.hosts = {-1, 0, 0, -1, 3, 0};
  batch.window = p.window;
  const double scale = 1 / std::sqrt(static_cast<double>(p.depth));
  const Tensor q = leaf({140, p.heads, p.depth}), k = leaf({140, p.kv_heads, p.depth}),
               v = leaf({140, p.kv_heads, p.depth});
  const Unshared whole = unshared(batch);
  const Tensor y = attention(q, k, v, batch, {scale}, nullptr);
  const auto rows_of = [&](const Tensor& t) { return t.index_select(0, whole.rows); };
  const Tensor expected =
      attention(rows_of(q), rows_of(k), rows_of(v), whole.batch, {scale}, nullptr)
          .index_select(0, whole.own);
  EXPECT_TRUE(at::equal(y, expected));
  const Tensor composed = attention_by_operators(q, k, v, batch, {scale}, nullptr);
  EXPECT_LT(distance(composed, y), 1e-6);
  const Tensor weights = at::randn(y.sizes());
  const auto grads = gradients(y, weights, {q, k, v}),
             of_whole = gradients(expected, weights, {q, k, v}),
             of_composed = gradients(composed, weights, {q, k, v});
  for (int i = 0; i < 3; ++i) {
    EXPECT_LT(distance(grads[i], of_whole[i]), 2e-6) << "gradient of input " << i;
    EXPECT_LT(distance(of_composed[i], of_whole[i]), 2e-6) << "operators, gradient " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         testing::Values(AttentionCase{4, 4, 16, 0}, AttentionCase{4, 2, 32, 0},
                                         AttentionCase{6, 2, 24, 0}, AttentionCase{4, 1, 8, 0},
                                         AttentionCase{4, 2, 16, 7}, AttentionCase{2, 2, 64, 40}));

// Whole-sequence attention, prefill in chunks and token-by-token decode through pages give the same
// bits.
TEST_F(KernelTest, PagedAttentionEqualsPackedToTheBit) {
  const at::NoGradGuard no_grad;
  const int64_t length = 75, heads = 4, kv_heads = 2, depth = 24;
  const Tensor q = at::randn({length, heads, depth}), k = at::randn({length, kv_heads, depth}),
               v = at::randn({length, kv_heads, depth});
  AttentionBatch whole;
  whole.query_begin = {0, static_cast<int32_t>(length)};
  whole.cached = {0};
  const Tensor expected = attention(q, k, v, whole, {0.3}, nullptr);
  for (const int64_t chunk : {1, 2, 20, 75}) {
    const KvLayer layer = allocate_kv(5, kv_heads, depth, q.options());
    layer.keys.fill_(NAN);
    layer.values.fill_(NAN);
    std::vector<Tensor> parts;
    for (int64_t begin = 0; begin < length; begin += chunk) {
      const int64_t count = std::min(chunk, length - begin);
      AttentionBatch batch;
      batch.query_begin = {0, static_cast<int32_t>(count)};
      batch.cached = {static_cast<int32_t>(begin)};
      batch.page_tables = {{4, 0, 2}};
      store_kv(k.narrow(0, begin, count), v.narrow(0, begin, count), batch, layer);
      parts.push_back(attention(q.narrow(0, begin, count), k.narrow(0, begin, count),
                                v.narrow(0, begin, count), batch, {0.3}, &layer));
    }
    EXPECT_TRUE(at::equal(at::cat(parts, 0), expected)) << "chunks of " << chunk;
    AttentionBatch last;
    last.query_begin = {0, 1};
    last.cached = {static_cast<int32_t>(length) - 1};
    last.page_tables = {{4, 0, 2}};
    const KvLayer numbers{at::nan_to_num(layer.keys), at::nan_to_num(layer.values)};
    const Tensor composed =
        attention_by_operators(q.narrow(0, length - 1, 1), k.narrow(0, length - 1, 1),
                               v.narrow(0, length - 1, 1), last, {0.3}, &numbers);
    EXPECT_LT(distance(composed, expected.narrow(0, length - 1, 1)), 1e-6);
  }
}

// Scores beyond the cap, so that its slope is felt.
TEST_F(KernelTest, SoftCapsOfScoresMatchOperators) {
  const AttentionBatch batch{{0, 70, 75}, {0, 0}, {}, 20};
  const ScoreRule rule{1.0, 2.5};
  const auto run = [&](bool composed) {
    at::manual_seed(4);
    std::vector<Tensor> in = {at::randn({75, 4, 24}), at::randn({75, 2, 24}),
                              at::randn({75, 2, 24})};
    for (Tensor& t : in) t.set_requires_grad(true);
    const Tensor y = composed ? attention_by_operators(in[0], in[1], in[2], batch, rule, nullptr)
                              : attention(in[0], in[1], in[2], batch, rule, nullptr);
    (y * y.detach().cos()).sum().backward();
    std::vector<Tensor> out = {y.detach()};
    for (const Tensor& t : in) out.push_back(t.grad());
    return out;
  };
  const std::vector<Tensor> expected = run(true), found = run(false);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(distance(found[i], expected[i]), 3e-6) << i;
}

TEST_F(KernelTest, SoftCapOfLogitsMatchesF64) {
  at::manual_seed(6);
  const Tensor h = (at::randn({40, 12}) * 2).requires_grad_(true);
  const Tensor w = at::randn({37, 12}).requires_grad_(true);
  const Tensor targets = at::arange(40).remainder(37), weights = at::randn({40});
  const HeadOutput out = head_logprobs(h, w, targets, {0.8, 16, 3.0});
  (out.logprobs_N * weights + out.entropy_N * weights.sin()).sum().backward();
  const Tensor hd = h.detach().to(at::kDouble).requires_grad_(true);
  const Tensor wd = w.detach().to(at::kDouble).requires_grad_(true);
  const Tensor logp = at::log_softmax(at::tanh(at::mm(hd, wd.t()) / 3.0) * 3.0 / 0.8, 1);
  const Tensor chosen = at::gather(logp, 1, targets.unsqueeze(1)).squeeze(1);
  const Tensor entropy = -(logp.exp() * logp).sum(1);
  (chosen * weights.to(at::kDouble) + entropy * weights.sin().to(at::kDouble)).sum().backward();
  EXPECT_LT(distance(out.logprobs_N.detach(), chosen.detach()), 1e-6);
  EXPECT_LT(distance(out.entropy_N.detach(), entropy.detach()), 1e-6);
  EXPECT_LT(distance(h.grad(), hd.grad()), 3e-6);
  EXPECT_LT(distance(w.grad(), wd.grad()), 3e-6);
}

TEST_F(KernelTest, RmsNormMatchesF64) {
  for (const bool offset : {false, true}) {
    const Tensor x = leaf({37, 72}), w = leaf({72});
    const Tensor x64 = x.detach().to(at::kDouble).requires_grad_(true),
                 w64 = w.detach().to(at::kDouble).requires_grad_(true);
    const Tensor y = rms_norm(x, w, 1e-5, offset);
    const Tensor y64 =
        x64 * at::rsqrt(at::mean(x64 * x64, {-1}, true) + 1e-5) * (offset ? w64 + 1 : w64);
    EXPECT_LT(distance(y, y64), 1e-6);
    const Tensor weights = at::randn(y.sizes());
    const auto grads = gradients(y, weights, {x, w}), grads64 = gradients(y64, weights, {x64, w64});
    for (int i = 0; i < 2; ++i) EXPECT_LT(distance(grads[i], grads64[i]), 1e-6);
  }
}

TEST_F(KernelTest, GatedActivationMatchesF64) {
  for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
    const Tensor x = leaf({33, 40});
    const Tensor x64 = x.detach().to(at::kDouble).requires_grad_(true);
    const Tensor gate = x64.narrow(1, 0, 20), up = x64.narrow(1, 20, 20);
    const Tensor y64 =
        (kind == Activation::kSilu ? at::silu(gate)
                                   : at::gelu(gate, kind == Activation::kGelu ? "none" : "tanh")) *
        up;
    const Tensor y = gated_activation(x, kind);
    EXPECT_LT(distance(y, y64), 1e-6);
    const Tensor weights = at::randn(y.sizes());
    EXPECT_LT(distance(gradients(y, weights, {x})[0], gradients(y64, weights, {x64})[0]), 1e-6);
  }
}

TEST_F(KernelTest, RotationIsOrthogonalAndDifferentiable) {
  const Tensor table = rope_table(RopeSpec{}, 16, 50), positions = at::arange(20) * 2;
  const Tensor x = leaf({20, 3, 16});
  const Tensor y = rotate(x, table, positions);
  EXPECT_LT(distance(y.norm(2, {2}), x.norm(2, {2})), 1e-6);
  EXPECT_TRUE(at::equal(y.select(0, 0), x.select(0, 0)));
  const Tensor weights = at::randn(y.sizes());
  const Tensor back = rotate(rotate(x, table, positions).detach(), table, positions);
  const Tensor grad = gradients(y, weights, {x})[0];
  EXPECT_LT(distance(rotate(grad, table, positions), weights),
            1e-6);  // the gradient is the inverse rotation
  EXPECT_GT(distance(back, x), 0.1);
}

TEST_F(KernelTest, HeadEqualsUnchunkedLogSoftmax) {
  for (const double temperature : {1.0, 0.7}) {
    const Tensor h = leaf({50, 24}), w = leaf({91, 24}),
                 targets = at::randint(0, 91, {50}, at::kLong);
    const Tensor h64 = h.detach().to(at::kDouble).requires_grad_(true),
                 w64 = w.detach().to(at::kDouble).requires_grad_(true);
    const HeadOutput out = head_logprobs(h, w, targets, {temperature, 16});
    const Tensor logp = at::log_softmax(at::matmul(h64, w64.t()) / temperature, 1);
    const Tensor logprobs64 = logp.gather(1, targets.unsqueeze(1)).squeeze(1),
                 entropy64 = (logp.exp() * logp).sum(1).neg();
    EXPECT_LT(distance(out.logprobs_N, logprobs64), 1e-6);
    EXPECT_LT(distance(out.entropy_N, entropy64), 1e-5);
    const Tensor a = at::randn({50}), b = at::randn({50});
    const auto grads =
        torch::autograd::grad({(out.logprobs_N * a + out.entropy_N * b).sum()}, {h, w});
    const auto grads64 =
        torch::autograd::grad({(logprobs64 * a + entropy64 * b).sum()}, {h64, w64});
    for (int i = 0; i < 2; ++i) EXPECT_LT(distance(grads[i], grads64[i]), 1e-5);
  }
}

// The most that tensors hold over what they held before.
int64_t head_peak_bytes(const Tensor& h, const Tensor& w, int64_t chunk_rows) {
  count_tensor_memory();
  const Tensor targets = at::randint(0, w.size(0), {h.size(0)}, at::kLong);
  const PeakMeter meter(at::kCPU);
  const HeadOutput out = head_logprobs(h, w, targets, {1, chunk_rows});
  torch::autograd::grad({(out.logprobs_N + out.entropy_N).sum()}, {h, w});
  return meter.most_bytes();
}

// With a large vocabulary more rows cost only their hidden states and a few numbers each.
TEST_F(KernelTest, HeadMemoryGrowsWithTheHiddenStatesOnly) {
  constexpr int64_t kVocab = 152000, kHidden = 8, kRows = 48;
  const Tensor w = leaf({kVocab, kHidden});
  const int64_t few = head_peak_bytes(leaf({kRows, kHidden}), w, 16);
  const int64_t many = head_peak_bytes(leaf({4 * kRows, kHidden}), w, 16);
  EXPECT_GT(few, 16 * kVocab * 4);  // a chunk of logits is seen
  EXPECT_LE(many - few, 3 * kRows * (4 * kHidden + 16) * 4);
  EXPECT_LT(many, 4 * kRows * kVocab * 4);  // all logits would be more
}

TEST_F(KernelTest, LinearRowsDoNotDependOnTheBatch) {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(batch_invariance_holds()) << threads << " threads";
  }
}

// Larger batches are padded to other numbers of rows.
TEST_F(KernelTest, LinearRowsOfLargeBatchesDoNotDependOnThem) {
  constexpr int64_t kMost = 2304;
  for (const char* library : {"default", "packed", "own"})
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const std::string name = type == at::kFloat ? "f32" : "bf16";
      if (!set_matrix_choices(cat(name, " 96 160 ", library)).ok()) continue;
      const at::NoGradGuard no_grad;
      const Tensor x = at::randn({kMost, 96}).to(type), w = at::randn({160, 96}).to(type);
      const Tensor whole = braid::linear(x, w, Tensor());
      for (const int64_t rows : {257, 1025, 1100, 1152, 1408, 1537, 2047, 2049})
        EXPECT_TRUE(
            braid::linear(x.narrow(0, 0, rows), w, Tensor()).equal(whole.narrow(0, 0, rows)))
            << library << " " << name << " " << rows;
    }
}

// Each library, with and without packing beforehand, with and without a bias.
TEST_F(KernelTest, LinearMatchesF64InEachLibrary) {
  for (const char* library : {"default", "packed", "own"}) {
    if (!set_matrix_choices(cat("f32 40 24 ", library, "\nf32 24 40 ", library)).ok()) continue;
    for (const bool with_bias : {false, true}) {
      const Tensor x = leaf({19, 40}), w = leaf({24, 40}), b = with_bias ? leaf({24}) : Tensor();
      const auto wide = [](const Tensor& t) {
        return t.detach().to(at::kDouble).requires_grad_(true);
      };
      const Tensor x64 = wide(x), w64 = wide(w), b64 = with_bias ? wide(b) : Tensor();
      Tensor y64 = at::matmul(x64, w64.t());
      if (with_bias) y64 = y64 + b64;
      std::vector<Tensor> inputs = {x, w}, inputs64 = {x64, w64};
      if (with_bias) inputs.push_back(b), inputs64.push_back(b64);
      const Tensor weights = at::randn(y64.sizes());
      const auto grads64 = gradients(y64, weights, inputs64);
      for (const bool for_backward : {false, true}) {
        const PackedLinear packed = pack_linear(w.detach(), for_backward);
        EXPECT_EQ(packed.forward.defined(), std::string(library) != "default");
        const Tensor y = braid::linear(x, w, b, &packed);
        EXPECT_TRUE(at::equal(y, braid::linear(x, w, b)));
        EXPECT_LT(distance(y, y64), 1e-6) << library;
        const auto grads = gradients(y, weights, inputs);
        for (size_t i = 0; i < inputs.size(); ++i)
          EXPECT_LT(distance(grads[i], grads64[i]), 2e-6) << library << ", gradient " << i;
      }
    }
  }
}

// Rows of a matrix that no earlier run of this test has measured: its choice would be in the cache.
int64_t fresh_rows() { return 40 + ::getpid() % 20000; }

// A job of which another rank has settled two shapes, one of them on a library that is not here.
class SettledElsewhere : public ChoiceAgreement {
 public:
  std::optional<std::string> known(const std::string& shape) override {
    const auto found = choices_.find(shape);
    return found == choices_.end() ? std::optional<std::string>() : found->second;
  }
  std::string settle(const std::string& shape, const std::string& library) override {
    const bool lost = shape == cat("f32 35 ", fresh_rows());
    return choices_.emplace(shape, lost ? "default" : library).first->second;
  }
  std::map<std::string, std::string> all() override { return choices_; }

 private:
  std::map<std::string, std::string> choices_ = {{cat("f32 ", fresh_rows(), " 35"), "default"},
                                                 {cat("f32 ", fresh_rows(), " 36"), "nowhere"}};
};

TEST_F(KernelTest, RanksTakeTheChoicesOfTheirJob) {
  const int64_t rows = fresh_rows();
  const std::string nowhere = cat("f32 ", rows, " 36 nowhere");
  SettledElsewhere job;
  make_choices_with(&job);
  EXPECT_EQ(matrix_library({rows, 35, at::kFloat}), MatrixLibrary::kDefault);  // known before
  EXPECT_EQ(matrix_library({35, rows, at::kFloat}), MatrixLibrary::kDefault);  // lost the race
  const MatrixLibrary own = matrix_library({36, rows, at::kFloat});
  EXPECT_NE(matrix_choices().find(nowhere), std::string::npos);
  ::testing::internal::CaptureStderr();
  matrix_library({rows, 36, at::kFloat});  // this rank's own
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(cat("'", nowhere, "'")),
            std::string::npos);
  make_choices_with(nullptr);
  EXPECT_EQ(matrix_library({36, rows, at::kFloat}), own);
}

TEST_F(KernelTest, MatrixChoicesAreKeptAndTakenOver) {
  const MatrixLibrary chosen = matrix_library({56, 48, at::kFloat});
  EXPECT_EQ(matrix_library({56, 48, at::kFloat}), chosen);
  const std::string saved = matrix_choices();
  EXPECT_NE(saved.find("f32 56 48 "), std::string::npos);
  ASSERT_TRUE(set_matrix_choices("f32 56 48 default\n").ok());
  EXPECT_EQ(matrix_library({56, 48, at::kFloat}), MatrixLibrary::kDefault);
  ASSERT_TRUE(set_matrix_choices(saved).ok());
  EXPECT_EQ(matrix_library({56, 48, at::kFloat}), chosen);
  for (const char* bad : {"f32 56 48", "f64 56 48 packed", "f32 x 48 packed", "f32 56 48 fastest"})
    EXPECT_FALSE(set_matrix_choices(bad).ok()) << bad;
}

}  // namespace
}  // namespace braid::inline nn
