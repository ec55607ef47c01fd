// What ranks gather of slices outside of passes, as simulators list it and as buckets travel.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "program/listed_messages.h"
#include "program/listed_transfers.h"
#include "program/local_parts.h"

namespace braid::inline program {
namespace {

ModelSpec small_spec(bool tied) {
  ModelSpec spec;
  spec.family = "llama";
  spec.layers = 5, spec.hidden = 12, spec.intermediate = 10, spec.vocab = 14;
  spec.heads = 6, spec.kv_heads = 2, spec.head_dim = 4, spec.max_positions = 5;
  spec.tied_embeddings = tied;
  return spec;
}

CallPlacement placed(const Strategy& strategy) {
  CallPlacement out;
  out.strategy = strategy, out.copy = 0;
  for (int i = 0; i < strategy.dp * strategy.tp * strategy.pp; ++i)
    out.mesh.devices.push_back(DeviceId{i});
  return out;
}

std::vector<Strategy> layouts() {
  std::vector<Strategy> out(4);
  out[0].dp = 4;
  out[1].dp = 4, out[1].zero_ranks = 2;
  out[2].dp = 2, out[2].tp = 2;
  out[3].dp = 2, out[3].pp = 2, out[3].interleave = 2;
  for (Strategy& each : out) each.zero_stage = 3;
  return out;
}

Expansion bodies_of(const CallFrame& frame, DeviceId rank) {
  Partition nothing;
  MiniBatch& minibatch = nothing.minibatches.emplace_back();
  minibatch.micro_batches.resize(frame.where->strategy.dp);
  minibatch.tokens.resize(frame.where->strategy.dp);
  return expand(frame, rank, nothing);
}

TEST(SliceGathers, AreWhatBucketsBringButForTheirPadding) {
  for (const bool tied : {false, true})
    for (const Strategy& strategy : layouts()) {
      const ModelSpec spec = small_spec(tied);
      const CallPlacement where = placed(strategy);
      ModelShape shape;
      shape.kinds = shape.changed = kinds_of(tensor_map(spec));
      shape.layers = spec.layers, shape.hidden = spec.hidden;
      const CallFrame frame{CallId{0}, CallKind::kTrainStep, &where, &shape};
      const ParamLayout layout = param_layout(where.mesh, strategy);
      for (const DeviceId rank : where.mesh.devices) {
        SCOPED_TRACE(
            cat("tied ", tied, ", dp ", strategy.dp, ", tp ", strategy.tp, ", rank ", rank.value));
        const Expansion ops = bodies_of(frame, rank);
        const std::vector<int64_t> whole = gathered_weights(shape, layout, rank);
        ASSERT_EQ(std::ssize(whole), spec.layers + 1);
        int64_t some = 0;
        for (int64_t layer = kEndsOfModel; layer < spec.layers; ++layer) {
          const std::vector<int64_t> buckets =
              gathers_of_layer(frame, call_tensors(spec, true, {}), ops, layer);
          const int64_t bytes = std::accumulate(buckets.begin(), buckets.end(), int64_t{0});
          const auto padding = static_cast<int64_t>(
              static_cast<double>(std::ssize(buckets) * (zero_ranks(strategy) - 1)) *
              shape.widths.gathered);
          EXPECT_LE(whole[layer + 1], bytes) << layer;
          EXPECT_GE(whole[layer + 1], bytes - padding) << layer;
          some += whole[layer + 1];
        }
        EXPECT_GT(some, 0);
      }
    }
}

TEST(SliceGathers, AreAmongThoseWhoShareASlice) {
  Strategy strategy;
  strategy.dp = 4, strategy.tp = 2, strategy.zero_stage = 3, strategy.zero_ranks = 2;
  const CallPlacement where = placed(strategy);
  const auto sharers = [&](int rank) {
    return slice_sharers(param_layout(where.mesh, strategy), DeviceId{rank});
  };
  EXPECT_EQ(sharers(0), (std::vector{DeviceId{0}, DeviceId{2}}));
  EXPECT_EQ(sharers(3), (std::vector{DeviceId{1}, DeviceId{3}}));
  EXPECT_EQ(sharers(6), (std::vector{DeviceId{4}, DeviceId{6}}));
  EXPECT_TRUE(sharers(8).empty());
  strategy.zero_stage = 2;
  EXPECT_TRUE(sharers(0).empty());
}

// Slices of all ranks that share them, as long as the longest.
TEST(SliceGathers, BringTogetherWhatCame) {
  const ModelSpec spec = small_spec(false);
  ModelShape model;
  const std::vector<TensorKind>& kinds = model.changed = kinds_of(tensor_map(spec));
  model.layers = spec.layers, model.widths.gathered = 2;
  Strategy strategy;
  strategy.dp = 4;
  const CallPlacement where = placed(strategy);
  strategy.zero_stage = 3;
  const ParamLayout to = param_layout(where.mesh, strategy);
  const std::vector<int64_t> bytes = gathered_arrivals(model, to, where.mesh.devices);
  ASSERT_EQ(std::ssize(bytes), spec.layers + 1);
  for (int64_t layer = kEndsOfModel; layer < spec.layers; ++layer) {
    int64_t most = 0;
    for (size_t place = 0; place < 4; ++place)
      most = std::max(most, elements_of(parts_of_layer(held_parts(kinds, spec.layers, to, place),
                                                       kinds, layer)));
    EXPECT_EQ(bytes[layer + 1], 4 * 2 * most);
  }
}

}  // namespace
}  // namespace braid::inline program
