#include "runtime/host_state.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <future>

namespace braid {
namespace {

TEST(HostState, LeavesAndComesBackWithItsValues) {
  const at::Tensor whole = at::arange(12, at::kFloat).view({3, 4}), view = whole.narrow(0, 1, 1);
  const at::Tensor other = at::full({5}, 7, at::kBFloat16);
  HostState state({{0, whole}, {0, view}, {0, other}});
  const at::Tensor before = whole.clone();
  state.offload(false);
  EXPECT_FALSE(state.here());
  EXPECT_EQ(whole.storage().nbytes(), 0u);
  EXPECT_EQ(other.storage().nbytes(), 0u);
  EXPECT_EQ(whole.sizes(), before.sizes());
  state.begin_load();
  EXPECT_TRUE(at::equal(whole, before));
  EXPECT_TRUE(at::equal(view, before.narrow(0, 1, 1)));
  EXPECT_TRUE(at::equal(other, at::full({5}, 7, at::kBFloat16)));
}

// What nobody changed is freed and not copied again; what changed is.
TEST(HostState, CopiesWhatChangedAndNothingElse) {
  const at::Tensor values = at::full({4}, 1, at::kFloat);
  HostState state({{0, values}});
  for (const bool changed : {true, false}) {
    state.offload(false);
    state.begin_load();
    values.fill_(2);
    state.offload(changed);
    state.begin_load();
    EXPECT_EQ(values[0].item<float>(), changed ? 2 : 1);
    values.fill_(1);
    state.offload(true);
    state.begin_load();
  }
}

// A recorded graph outlives the absence of what it reads.
TEST(HostState, GraphsStayValid) {
  const at::Tensor weight = at::full({3}, 2, at::kFloat).requires_grad_();
  const at::Tensor x = at::full({3}, 5, at::kFloat).requires_grad_();
  HostState state({{0, weight}});
  const at::Tensor loss = (weight * x).sum();
  state.offload(false);
  state.begin_load();
  loss.backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 2, at::kFloat)));
}

// What one layer needs may be used while the next one has yet to come; who waits for that gets it.
TEST(HostState, LayersAreUsedWhileTheNextOnesCome) {
  CopyThread copies;
  const at::Tensor first = at::full({3}, 1, at::kFloat), second = at::full({3}, 2, at::kFloat);
  HostState state({{2, second}, {1, first}}, &copies);  // in the order of units, whatever this is
  state.offload(true);
  std::promise<void> go;
  state.begin_load(0, 2);
  EXPECT_FALSE(state.here());
  const int64_t held_up = copies.add([waits = go.get_future().share()] { waits.wait(); });
  state.begin_load(2, 3);
  EXPECT_TRUE(state.here());
  EXPECT_GT(second.storage().nbytes(), 0u);  // room, and no values yet
  state.wait(1);
  EXPECT_EQ(first.sum().item<float>(), 3);
  EXPECT_FALSE(copies.done(held_up + 1));
  go.set_value();
  state.wait(2);
  EXPECT_TRUE(copies.done(held_up + 1));
  EXPECT_EQ(second.sum().item<float>(), 6);
}

// What is on its way when it has to leave arrives first.
TEST(HostState, LeavesAfterItHasCome) {
  CopyThread copies;
  const at::Tensor values = at::arange(1000, at::kFloat), before = values.clone();
  HostState state({{0, values}}, &copies);
  for (const bool changed : {true, true, false}) {
    state.offload(changed);
    state.begin_load();
  }
  state.wait();
  EXPECT_TRUE(at::equal(values, before));
}

}  // namespace
}  // namespace braid
