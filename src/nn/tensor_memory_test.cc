#include "nn/tensor_memory.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(TensorMemory, CountsWhatTensorsHoldAndTheMost) {
  count_tensor_memory();
  constexpr int64_t kNumbers = 1 << 20, kBytes = 4 * kNumbers, kSlack = 1 << 13;
  const int64_t before = tensor_bytes();
  reset_peak_tensor_bytes();
  {
    const at::Tensor kept = at::empty({kNumbers}, at::kFloat);
    EXPECT_NEAR(tensor_bytes() - before, kBytes, kSlack);
    { const at::Tensor other = at::empty({2 * kNumbers}, at::kFloat); }
    EXPECT_NEAR(tensor_bytes() - before, kBytes, kSlack);
    const at::Tensor view = kept.view({1024, kNumbers / 1024});
    EXPECT_NEAR(tensor_bytes() - before, kBytes, kSlack);
  }
  EXPECT_EQ(tensor_bytes(), before);
  EXPECT_NEAR(peak_tensor_bytes() - before, 3 * kBytes, kSlack);
  reset_peak_tensor_bytes();
  EXPECT_EQ(peak_tensor_bytes(), before);
}

}  // namespace
}  // namespace braid
