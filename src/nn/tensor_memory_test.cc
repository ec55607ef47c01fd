#include "device/tensor_memory.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

namespace braid::inline nn {
namespace {

constexpr int64_t kNumbers = 1 << 20, kBytes = 4 * kNumbers, kSlack = 1 << 13;

TEST(TensorMemory, CountsWhatTensorsHoldAndTheMost) {
  count_tensor_memory();
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

TEST(TensorMemory, LimitRefusesWhatExceedsItAndNothingElse) {
  count_tensor_memory();
  EXPECT_FALSE(free_tensor_bytes(at::kCPU).has_value());
  set_tensor_memory_limit(tensor_bytes() + 2 * kBytes);
  {
    const at::Tensor first = at::empty({kNumbers}, at::kFloat);
    EXPECT_NEAR(*free_tensor_bytes(at::kCPU), kBytes, kSlack);
    EXPECT_THROW(at::empty({kNumbers + kSlack}, at::kFloat), c10::OutOfMemoryError);
    try {
      at::empty({2 * kNumbers}, at::kFloat);
    } catch (const std::exception& error) {
      EXPECT_TRUE(is_out_of_memory(error)) << error.what();
    }
    EXPECT_NEAR(*free_tensor_bytes(at::kCPU), kBytes, kSlack);  // a refused one holds nothing
    const at::Tensor second = at::empty({kNumbers - kSlack}, at::kFloat);
  }
  EXPECT_NO_THROW(at::empty({kNumbers + kSlack}, at::kFloat));
  set_tensor_memory_limit(0);
  EXPECT_NO_THROW(at::empty({3 * kNumbers}, at::kFloat));
}

// As Gloo's thread does with the tensors of a collective that is done.
TEST(TensorMemory, WaitsForWhatAnotherThreadIsAboutToLetGo) {
  count_tensor_memory();
  set_tensor_memory_limit(tensor_bytes() + kBytes + kSlack);
  at::Tensor held = at::empty({kNumbers}, at::kFloat);
  std::thread other([held = std::move(held)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    held.reset();
  });
  EXPECT_NO_THROW(at::empty({kNumbers}, at::kFloat));
  other.join();
  set_tensor_memory_limit(0);
}

TEST(TensorMemory, KnowsWhatRunsOut) {
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  EXPECT_TRUE(is_out_of_memory(std::runtime_error("DefaultCPUAllocator: can't allocate memory")));
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("shapes do not fit")));
}

TEST(TensorMemory, MetersLieWithinEachOther) {
  count_tensor_memory();
  reset_peak_tensor_bytes();
  const int64_t before = tensor_bytes();
  { const at::Tensor first = at::empty({3 * kNumbers}, at::kFloat); }
  {
    const PeakMeter outer(at::kCPU);
    at::Tensor kept = at::empty({kNumbers}, at::kFloat);
    {
      const PeakMeter inner(at::kCPU);
      { const at::Tensor other = at::empty({kNumbers}, at::kFloat); }
      EXPECT_NEAR(inner.most_bytes(), kBytes, kSlack);
      EXPECT_EQ(inner.kept_bytes(), 0);
    }
    EXPECT_NEAR(outer.most_bytes(), 2 * kBytes, kSlack);
    EXPECT_NEAR(outer.kept_bytes(), kBytes, kSlack);
  }
  EXPECT_NEAR(peak_tensor_bytes() - before, 3 * kBytes, kSlack);
}

}  // namespace
}  // namespace braid::inline nn
