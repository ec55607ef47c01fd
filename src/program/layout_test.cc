// Layouts hold every parameter; reallocation plans are checked element by element.
#include "program/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "program/reallocation.h"
#include "program/transfer.h"

namespace braid::inline program {
namespace {

TEST(Layout, TensorKindsSumToTheModel) {
  for (const ModelSize& model : model_catalogue()) {
    int64_t sum = 0;
    for (const TensorKind& kind : tensor_kinds(model, false)) {
      EXPECT_EQ(kind.elements % kind.units, 0) << model.name << " " << kind.name;
      const int64_t layers = kind.layer_end - kind.layer_begin;
      sum += kind.elements * (layers > 0 ? layers : 1);
    }
    EXPECT_EQ(sum, total_params(model)) << model.name;
  }
}

TEST(Layout, OneDeviceHoldsAllAndParallelRanksShareIt) {
  const ModelSize model = *find_model("llama2-7b");
  const auto kinds = tensor_kinds(model, false);
  Strategy strategy;
  const ParamLayout one = param_layout({{DeviceId{0}}}, strategy);
  EXPECT_DOUBLE_EQ(held_parameters(kinds, one, model.layers, 0),
                   static_cast<double>(total_params(model)));
  strategy.tp = 2, strategy.pp = 2;
  DeviceMesh mesh;
  for (int i = 0; i < 4; ++i) mesh.devices.push_back(DeviceId{i});
  const ParamLayout four = param_layout(mesh, strategy);
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) sum += held_parameters(kinds, four, model.layers, i);
  // Norms are on both tensor-parallel ranks.
  const double twice = static_cast<double>((2 * model.layers + 1) * model.hidden);
  EXPECT_DOUBLE_EQ(sum, static_cast<double>(total_params(model)) + twice);
}

// A small model whose elements can be enumerated: 6 query and 2 key-value heads, 5 layers.
ModelSize tiny_model(bool tied) {
  ModelSize model;
  model.name = "tiny";
  model.layers = 5, model.hidden = 6, model.intermediate = 12, model.heads = 6;
  model.kv_heads = 2, model.head_dim = 1, model.vocab = 10;
  model.tied_embeddings = tied;
  return model;
}

using Element = std::tuple<int32_t, int64_t, int64_t>;  // kind, layer, element

std::map<DeviceId, std::set<Element>> owners(const std::vector<TensorKind>& kinds,
                                             const ParamLayout& layout, int64_t layers) {
  Strategy grid;
  grid.dp = layout.dp, grid.tp = layout.tp, grid.pp = layout.pp;
  std::map<DeviceId, std::set<Element>> out;
  for (size_t i = 0; i < layout.mesh.devices.size(); ++i) {
    const GridPosition at = grid_position(grid, i);
    for (size_t kind = 0; kind < kinds.size(); ++kind)
      for (const Interval& run : held_layers(kinds[kind], layout, layers, at.stage))
        for (int64_t layer = run.begin; layer < run.end; ++layer) {
          const Interval held = held_elements(kinds[kind], layout, at);
          for (int64_t e = held.begin; e < held.end; ++e)
            out[layout.mesh.devices[i]].insert({static_cast<int32_t>(kind), layer, e});
        }
  }
  return out;
}

ParamLayout random_layout(RandomStream* random, int devices) {
  static const int kSizes[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1},
                                  {1, 2, 2}, {2, 1, 2}, {4, 1, 1}, {1, 3, 1}, {1, 6, 1},
                                  {2, 2, 2}, {1, 1, 5}, {2, 3, 1}, {8, 1, 1}, {1, 2, 4}};
  const auto& size = kSizes[random->below(15)];
  Strategy strategy;
  strategy.dp = size[0], strategy.tp = size[1], strategy.pp = size[2];
  if (strategy.pp == 2 && random->below(2) == 0) strategy.interleave = 2;
  if (strategy.dp > 1 && random->below(3) == 0) strategy.zero_stage = 3;
  std::vector<DeviceId> all;
  for (int i = 0; i < devices; ++i) all.push_back(DeviceId{i});
  DeviceMesh mesh;
  for (int i = 0; i < size[0] * size[1] * size[2]; ++i) {
    const size_t pick = random->below(all.size());
    mesh.devices.push_back(all[pick]);
    all.erase(all.begin() + static_cast<int64_t>(pick));
  }
  return param_layout(mesh, strategy);
}

struct Moved {
  std::map<DeviceId, std::set<Element>> arrived;
  double bytes = 0;
};

// Executes the messages; every part must be at its sender when it leaves, and new to its receiver.
Moved execute(const std::vector<Message>& messages,
              const std::map<DeviceId, std::set<Element>>& before) {
  Moved moved;
  auto has = before;
  int32_t slot = 0;
  std::map<DeviceId, std::set<Element>> landing;  // readable from the next slot on
  for (const Message& message : messages) {
    EXPECT_GE(message.slot, slot);
    if (message.slot > slot)
      for (auto& [device, elements] : landing) has[device].insert(elements.begin(), elements.end());
    slot = message.slot;
    for (const MessagePart& part : message.parts)
      for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
        for (int64_t e = part.units.begin; e < part.units.end; ++e) {
          const Element element{part.item, layer, e};
          EXPECT_EQ(has[message.from].count(element), 1U);
          EXPECT_TRUE(moved.arrived[message.to].insert(element).second) << "sent twice";
          landing[message.to].insert(element);
        }
    moved.bytes += message.bytes;
  }
  return moved;
}

TEST(Reallocation, MovesExactlyWhatEachDeviceLacks) {
  RandomStream random(7, 0);
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 3, 4);
  for (int trial = 0; trial < 600; ++trial) {
    const ModelSize model = tiny_model(trial % 2 == 0);
    const auto kinds = tensor_kinds(model, trial % 5 == 0);
    const ParamLayout from = random_layout(&random, 12), to = random_layout(&random, 12);
    ReallocationOptions options;
    options.message_bytes = trial % 3 == 0 ? 64 : 1e9;
    const auto messages = plan_reallocation(kinds, model.layers, from, to, cluster, options);
    const auto before = owners(kinds, from, model.layers);
    const auto wanted = owners(kinds, to, model.layers);
    const Moved moved = execute(messages, before);
    double lacking = 0;
    for (const auto& [device, elements] : wanted) {
      std::set<Element> expected;
      const auto had = before.find(device);
      for (const Element& element : elements)
        if (had == before.end() || had->second.count(element) == 0) expected.insert(element);
      lacking += 2.0 * static_cast<double>(expected.size());
      const auto got = moved.arrived.find(device);
      EXPECT_EQ(got == moved.arrived.end() ? std::set<Element>{} : got->second, expected) << trial;
    }
    EXPECT_DOUBLE_EQ(moved.bytes, lacking);
    for (const Message& message : messages) EXPECT_LE(message.bytes, options.message_bytes * 12);
  }
}

TEST(Reallocation, EqualLayoutsMoveNothing) {
  RandomStream random(8, 0);
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 3, 4);
  const ModelSize model = tiny_model(false);
  for (int trial = 0; trial < 50; ++trial) {
    const ParamLayout layout = random_layout(&random, 12);
    EXPECT_TRUE(
        plan_reallocation(tensor_kinds(model, false), model.layers, layout, layout, cluster, {})
            .empty());
  }
}

DeviceMesh devices_from(int first, int count) {
  DeviceMesh mesh;
  for (int i = 0; i < count; ++i) mesh.devices.push_back(DeviceId{first + i});
  return mesh;
}

// What each device of a node holds a part of goes directly from it to all others, each beginning
// with another one; a single holder is relieved by those that have received.
TEST(Reallocation, HopsInsideANodeOnlyWhereTheySpreadTheLoad) {
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 1, 8);
  MoveItem shards, whole;
  shards.unit_bytes = whole.unit_bytes = 2;
  for (int d = 0; d < 8; ++d) {
    shards.owners.push_back({DeviceId{d}, {d * 100, d * 100 + 100}});
    shards.receivers.push_back({DeviceId{d}, {0, 800}});
  }
  SendLoad load(8);
  std::vector<MovePiece> pieces;
  plan_moves(shards, cluster, Relays::kWhereEven, &load, &pieces);
  std::map<DeviceId, DeviceId> first;
  for (const MovePiece& piece : pieces) {
    EXPECT_EQ(piece.depth, 0);
    first.insert({piece.from, piece.to});
  }
  std::set<DeviceId> different;
  for (const auto& [from, to] : first) different.insert(to);
  EXPECT_EQ(different.size(), 8U);
  for (const double bytes : load.inside) EXPECT_DOUBLE_EQ(bytes, 7 * 200);

  for (int block = 0; block < 8; ++block)
    whole.owners.push_back({DeviceId{0}, {block * 100, block * 100 + 100}});
  for (int d = 1; d < 8; ++d) whole.receivers.push_back({DeviceId{d}, {0, 800}});
  SendLoad relayed(8);
  plan_moves(whole, cluster, Relays::kWhereEven, &relayed, &pieces);
  EXPECT_LT(*std::max_element(relayed.inside.begin(), relayed.inside.end()), 2 * 7 * 200.0);
}

// A device that wants the same units for two calls gets them once, also where receivers of the
// owner's node do not pass on because another device is busier anyway.
TEST(Reallocation, AReceiverListedTwiceIsServedOnce) {
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 1, 8);
  MoveItem item;
  item.unit_bytes = 2;
  item.owners = {{DeviceId{0}, {0, 100}}};
  item.receivers = {{DeviceId{1}, {0, 100}}, {DeviceId{1}, {50, 100}}, {DeviceId{2}, {0, 50}}};
  SendLoad load(8);
  load.inside[7] = 1e6;
  std::vector<MovePiece> pieces;
  plan_moves(item, cluster, Relays::kWhereEven, &load, &pieces);
  std::map<DeviceId, int64_t> received;
  for (const MovePiece& piece : pieces) received[piece.to] += piece.units.size();
  EXPECT_EQ(received, (std::map<DeviceId, int64_t>{{DeviceId{1}, 100}, {DeviceId{2}, 50}}));
}

// Four replicas send to four others: the busiest sends no more than a tenth above its share.
TEST(Reallocation, SendersShareTheWork) {
  const ModelSize model = *find_model("llama2-7b");
  const auto kinds = tensor_kinds(model, false);
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 2, 8);
  for (const auto& [dp, tp] : {std::pair(4, 2), std::pair(2, 4), std::pair(8, 1)}) {
    Strategy from, to;
    from.dp = dp, from.tp = tp;
    to.tp = 8;
    std::map<DeviceId, double> sent;
    double total = 0;
    for (const Message& m :
         plan_reallocation(kinds, model.layers, param_layout(devices_from(0, 8), from),
                           param_layout(devices_from(8, 8), to), cluster, {})) {
      if (node_of(cluster, m.from) == node_of(cluster, m.to)) continue;
      sent[m.from] += m.bytes;
      total += m.bytes;
    }
    double busiest = 0;
    for (const auto& [device, bytes] : sent) busiest = std::max(busiest, bytes);
    EXPECT_LE(busiest, 1.1 * total / 8) << dp << " " << tp;
  }
}

// Replicas of a node all need the whole model: each brings in a part from the other node and gets
// the rest from its neighbours.
TEST(Reallocation, ReceiversOfANodeShareWhatComesIn) {
  const ModelSize model = *find_model("llama2-7b");
  const auto kinds = tensor_kinds(model, false);
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 2, 8);
  Strategy from, to;
  from.tp = 8;
  to.dp = 8;
  std::map<DeviceId, double> brought_in;
  double total = 0;
  for (const Message& m :
       plan_reallocation(kinds, model.layers, param_layout(devices_from(0, 8), from),
                         param_layout(devices_from(8, 8), to), cluster, {})) {
    if (node_of(cluster, m.from) == node_of(cluster, m.to)) continue;
    brought_in[m.to] += m.bytes;
    total += m.bytes;
  }
  EXPECT_NEAR(total / (2.0 * static_cast<double>(total_params(model))), 1, 0.01);
  for (const auto& [device, bytes] : brought_in) EXPECT_LE(bytes, 1.1 * total / 8) << device;
}

// Norms, which lie otherwise than the large tensors, do not change who sends those to whom: over
// the network each device sends to one other.
TEST(Reallocation, SmallTensorsKeepPairsOfDevices) {
  const ModelSize model = *find_model("llama2-7b");
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 2, 8);
  Strategy from, to;
  from.dp = 4, from.tp = 2, from.zero_stage = 3;
  to.dp = 8;
  std::map<DeviceId, std::map<DeviceId, double>> sent;
  for (const Message& m : plan_reallocation(tensor_kinds(model, false), model.layers,
                                            param_layout(devices_from(0, 8), from),
                                            param_layout(devices_from(8, 8), to), cluster, {}))
    if (node_of(cluster, m.from) != node_of(cluster, m.to)) sent[m.from][m.to] += m.bytes;
  ASSERT_EQ(sent.size(), 8U);
  for (const auto& [from_device, receivers] : sent) {
    double most = 0, total = 0;
    for (const auto& [device, bytes] : receivers) total += bytes, most = std::max(most, bytes);
    EXPECT_GT(most, 0.9 * total) << from_device;
  }
}

// One node feeds seven: no device sends its slice over the network more often than a binary tree
// would, and each slice enters a node once.
TEST(Reallocation, ReceiversPassOnWhatManyNodesNeed) {
  const ModelSize model = *find_model("llama2-7b");
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 8, 8);
  Strategy from, to;
  from.tp = 8;
  to.tp = 8, to.dp = 7;
  std::map<DeviceId, double> sent;
  const auto kinds = tensor_kinds(model, false);
  const ParamLayout home = param_layout(devices_from(0, 8), from);
  for (const Message& m : plan_reallocation(kinds, model.layers, home,
                                            param_layout(devices_from(8, 56), to), cluster, {}))
    if (node_of(cluster, m.from) != node_of(cluster, m.to)) sent[m.from] += m.bytes;
  double total = 0, busiest = 0;
  for (const auto& [device, bytes] : sent) total += bytes, busiest = std::max(busiest, bytes);
  const double share = 2 * held_parameters(kinds, home, model.layers, 0);
  EXPECT_NEAR(total / (7 * 8 * share), 1, 0.01);
  EXPECT_LE(busiest, 2 * share);
}

// A stage on each of eight nodes, and every device wants all: the owners send to the other nodes
// themselves, as they can share that evenly, and only into a node pieces are passed on.
TEST(Reallocation, StagesSendToAllNodesThemselves) {
  const ModelSize model = *find_model("llama2-7b");
  const Cluster cluster = *make_cluster(*find_gpu("a100-80g"), 8, 8);
  Strategy from, to;
  from.dp = 4, from.tp = 2, from.pp = 8;
  to.dp = 64;
  std::map<DeviceId, double> sent;
  double total = 0;
  const auto kinds = tensor_kinds(model, true);
  for (const Message& m :
       plan_reallocation(kinds, model.layers, param_layout(devices_from(0, 64), from),
                         param_layout(devices_from(0, 64), to), cluster, {})) {
    EXPECT_LE(m.depth, 1);
    EXPECT_EQ(m.lane == m.from.value / 8, m.depth == 0);
    if (node_of(cluster, m.from) == node_of(cluster, m.to)) continue;
    EXPECT_EQ(m.depth, 0);
    sent[m.from] += m.bytes;
    total += m.bytes;
  }
  double busiest = 0;
  for (const auto& [device, bytes] : sent) busiest = std::max(busiest, bytes);
  EXPECT_LE(busiest, 1.25 * total / 64);
}

}  // namespace
}  // namespace braid::inline program
