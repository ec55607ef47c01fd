#include "runtime/host_state.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(HostState, LeavesAndComesBackWithItsValues) {
  const at::Tensor whole = at::arange(12, at::kFloat).view({3, 4}), view = whole.narrow(0, 1, 1);
  const at::Tensor other = at::full({5}, 7, at::kBFloat16);
  HostState state({whole, view, other});
  const at::Tensor before = whole.clone();
  state.offload(false);
  EXPECT_FALSE(state.here());
  EXPECT_EQ(whole.storage().nbytes(), 0u);
  EXPECT_EQ(other.storage().nbytes(), 0u);
  EXPECT_EQ(whole.sizes(), before.sizes());
  state.load();
  EXPECT_TRUE(at::equal(whole, before));
  EXPECT_TRUE(at::equal(view, before.narrow(0, 1, 1)));
  EXPECT_TRUE(at::equal(other, at::full({5}, 7, at::kBFloat16)));
}

// What nobody changed is freed and not copied again; what changed is.
TEST(HostState, CopiesWhatChangedAndNothingElse) {
  const at::Tensor values = at::full({4}, 1, at::kFloat);
  HostState state({values});
  for (const bool changed : {true, false}) {
    state.offload(false);
    state.load();
    values.fill_(2);
    state.offload(changed);
    state.load();
    EXPECT_EQ(values[0].item<float>(), changed ? 2 : 1);
    values.fill_(1);
    state.offload(true);
    state.load();
  }
}

// A recorded graph outlives the absence of what it reads.
TEST(HostState, GraphsStayValid) {
  const at::Tensor weight = at::full({3}, 2, at::kFloat).requires_grad_();
  const at::Tensor x = at::full({3}, 5, at::kFloat).requires_grad_();
  HostState state({weight});
  const at::Tensor loss = (weight * x).sum();
  state.offload(false);
  state.load();
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 2, at::kFloat)));
}

}  // namespace
}  // namespace braid
