#include "nn/kernels/panels.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace braid::inline nn {
namespace {

using at::Tensor;
using panels::Simd;

struct PanelCase {
  at::ScalarType type;
  int64_t in, out;
};

class PanelTest : public testing::TestWithParam<PanelCase> {
 protected:
  void SetUp() override {
    simd_ = panels::simd_for(GetParam().type);
    if (simd_ == Simd::kNone) GTEST_SKIP() << "this processor has no GEMMs of the type";
  }
  void TearDown() override { at::set_num_threads(2); }
  static Tensor numbers(int64_t rows, int64_t columns) {
    return at::randn({rows, columns}).to(GetParam().type);
  }
  Tensor gemm(const Tensor& x, const Tensor& packed, const Tensor& b = {}) const {
    return panels::gemm(x, packed, b, simd_);
  }

  at::NoGradGuard no_grad_;
  Simd simd_ = Simd::kNone;
};

TEST_P(PanelTest, RowsDependNeitherOnTheBatchNorOnThreads) {
  const auto [type, in, out] = GetParam();
  const Tensor x = numbers(1000, in), packed = panels::pack(numbers(out, in));
  const Tensor whole = gemm(x, packed);
  std::vector<int64_t> batches = {96, 128, 191, 1000};
  for (int64_t rows = 1; rows <= 64; ++rows) batches.push_back(rows);
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const int64_t rows : batches)
      EXPECT_TRUE(at::equal(gemm(x.narrow(0, 0, rows), packed), whole.narrow(0, 0, rows)))
          << rows << " rows, " << threads << " threads";
    EXPECT_TRUE(at::equal(gemm(x.narrow(0, 501, 3), packed), whole.narrow(0, 501, 3)));
  }
}

// A sum of n products in any order is off by at most n rounding errors of the sum of their absolute
// values (Higham, Accuracy and Stability of Numerical Algorithms, §3.1); then the result is rounded
// to its type.
TEST_P(PanelTest, IsWithinRoundingOfF64) {
  const auto [type, in, out] = GetParam();
  for (const int64_t rows : {1, 13}) {
    const Tensor x = numbers(rows, in), w = numbers(out, in), b = numbers(1, out).squeeze(0);
    const Tensor x64 = x.to(at::kDouble), w64 = w.to(at::kDouble), b64 = b.to(at::kDouble);
    const Tensor y64 = at::linear(x64, w64, b64);
    Tensor bound = at::linear(x64.abs(), w64.abs(), b64.abs()) *
                   (static_cast<double>(in + 1) * std::numeric_limits<float>::epsilon());
    if (type == at::kBFloat16) bound = bound + y64.abs() / 256;
    const Tensor error = (gemm(x, panels::pack(w), b).to(at::kDouble) - y64).abs();
    EXPECT_TRUE((error <= bound).all().item<bool>()) << rows << " rows";
  }
}

TEST_P(PanelTest, StridesOfItsArgumentsDoNotMatter) {
  const auto [type, in, out] = GetParam();
  const Tensor w = numbers(out, in), wide = numbers(21, in + 3), across = numbers(in, 21);
  const Tensor packed = panels::pack(w);
  EXPECT_EQ(packed.sizes(), w.sizes());
  const Tensor part = wide.narrow(1, 1, in);
  EXPECT_TRUE(at::equal(gemm(part, packed), gemm(part.contiguous(), packed)));
  EXPECT_TRUE(at::equal(gemm(across.t(), packed), gemm(across.t().contiguous(), packed)));
  const Tensor transposed = panels::pack(w.t().contiguous().t());
  EXPECT_TRUE(at::equal(gemm(part, transposed), gemm(part, packed)));
  EXPECT_EQ(gemm(part.narrow(0, 0, 0), packed).sizes(), (std::vector<int64_t>{0, out}));
}

// With fused multiply-adds in the same order the width of registers does not matter.
TEST(PanelWidthTest, NarrowRegistersGiveTheBitsOfWideOnes) {
  if (panels::simd_for(at::kFloat) != Simd::kAvx512) GTEST_SKIP() << "no wide registers";
  const at::NoGradGuard no_grad;
  for (const auto& [in, out] : {std::pair(64, 96), std::pair(33, 70), std::pair(7, 1)}) {
    const Tensor b = at::randn({out}), packed = panels::pack(at::randn({out, in}));
    for (int64_t rows = 1; rows <= 17; ++rows) {
      const Tensor x = at::randn({rows, in});
      EXPECT_TRUE(at::equal(panels::gemm(x, packed, b, Simd::kAvx2),
                            panels::gemm(x, packed, b, Simd::kAvx512)))
          << rows << " rows";
    }
  }
}

std::string case_name(const testing::TestParamInfo<PanelCase>& info) {
  return (info.param.type == at::kFloat ? "F32x" : "Bf16x") + std::to_string(info.param.in) + "x" +
         std::to_string(info.param.out);
}

// Whole panels, odd sizes, less than a panel, more panels than a chunk.
INSTANTIATE_TEST_SUITE_P(
    Shapes, PanelTest,
    testing::Values(PanelCase{at::kFloat, 64, 96}, PanelCase{at::kFloat, 33, 70},
                    PanelCase{at::kFloat, 7, 1}, PanelCase{at::kFloat, 517, 641},
                    PanelCase{at::kBFloat16, 64, 96}, PanelCase{at::kBFloat16, 33, 70},
                    PanelCase{at::kBFloat16, 1, 17}, PanelCase{at::kBFloat16, 517, 641}),
    case_name);

}  // namespace
}  // namespace braid::inline nn
