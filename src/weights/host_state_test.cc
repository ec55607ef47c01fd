#include "weights/host_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "nn/decoder.h"
#include "nn/test_models.h"

namespace braid::inline weights {
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

// The copy of the second layer is held up until the first one has been computed: a pass that waited
// for more than its own layer would not end.
TEST(HostState, ALayerComputesBeforeTheNextOneIsThere) {
  const auto model = small_model("llama3");
  auto& decoder = dynamic_cast<Decoder&>(*model);
  const TokenBatch batch = pack_sequences({{1, 2, 3, 4, 5}}, at::kCPU);
  const at::NoGradGuard no_grad;
  const at::Tensor expected = model->forward(batch, nullptr);
  CopyThread copies;
  std::vector<std::pair<int64_t, at::Tensor>> tensors;
  for (const auto& [name, parameter] : model->parameters())
    tensors.emplace_back(decoder.unit_of(name), parameter);
  HostState state(tensors, &copies);
  state.offload(true);
  std::promise<void> computed;
  int layers = 0;
  decoder.set_unit_begin([&](int64_t unit) { state.wait(unit); });
  decoder.set_layer_done([&] {
    if (++layers == 1) computed.set_value();
  });
  state.begin_load(0, 2);
  bool in_time = false;
  copies.add([&in_time, waits = computed.get_future().share()] {
    in_time = waits.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  });
  state.begin_load();
  EXPECT_TRUE(at::equal(model->forward(batch, nullptr), expected));
  state.wait();
  EXPECT_TRUE(in_time);
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
}  // namespace braid::inline weights
