// Reallocation between random layouts of every family, bit by bit, with the bytes of a brute-force
// count.
#include "weights/reallocate.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <set>
#include <tuple>

#include "base/rng.h"
#include "base/testing.h"
#include "comm/rank_testing.h"
#include "comm/transfer_audit.h"
#include "host/file.h"
#include "program/local_parts.h"
#include "samples/listed_counts.h"
#include "test_paths.h"
#include "weights/test_store.h"

namespace braid::inline weights {
namespace {

constexpr int64_t kLayers = 4;
const char* const kFamilies[] = {"llama",  "llama3", "qwen2", "qwen3",     "mistral",     "gemma",
                                 "gemma2", "gemma3", "phi3",  "phi3-long", "qwen2-mixed", "gpt2"};

ModelSize size_of(const std::string& family) {
  const std::string path = cat(BRAID_SOURCE_DIR, "/tests/data/models/", family, "/config.json");
  ModelSize size = *parse_model_size(*read_file(path), path);
  size.layers = kLayers;
  return size;
}

// A layout over some of `devices` devices in any order.
ParamLayout random_layout(RandomStream* random, int devices) {
  static const int kGrids[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {4, 1, 1}, {1, 4, 1},
                                  {1, 1, 4}, {2, 2, 1}, {2, 1, 2}, {1, 2, 2}, {3, 1, 1}, {1, 1, 3}};
  const int(&grid)[3] = kGrids[random->below(12)];
  Strategy strategy;
  strategy.dp = grid[0], strategy.tp = grid[1], strategy.pp = grid[2];
  if (strategy.pp == 2 && random->below(2) == 0) strategy.stage_layers = {1, kLayers - 1};
  if (strategy.pp == 2 && random->below(3) == 0) {
    strategy.interleave = 2;
    strategy.stage_layers.clear();
  }
  if (strategy.dp > 1 && random->below(3) == 0) strategy.zero_stage = 3;
  std::vector<DeviceId> all;
  for (int i = 0; i < devices; ++i) all.push_back(DeviceId{i});
  DeviceMesh mesh;
  for (int i = 0; i < grid[0] * grid[1] * grid[2]; ++i) {
    const size_t pick = random->below(all.size());
    mesh.devices.push_back(all[pick]);
    all.erase(all.begin() + static_cast<int64_t>(pick));
  }
  return param_layout(mesh, strategy);
}

// The value of each element tells where it belongs.
at::Tensor values_of(int32_t kind, int64_t layer, const Interval& elements) {
  return at::arange(elements.begin, elements.end, at::kInt) * 131 + kind * 7 + layer * 1000003;
}

using Element = std::tuple<int32_t, int64_t, int64_t>;

std::set<Element> elements_held(const std::vector<TensorKind>& kinds, const ParamLayout& layout,
                                DeviceId device) {
  std::set<Element> out;
  const auto place = place_in_mesh(layout, device);
  if (!place) return out;
  for (const MessagePart& part : held_parts(kinds, kLayers, layout, *place))
    for (int64_t layer = part.layers.begin; layer < part.layers.end; ++layer)
      for (int64_t e = part.units.begin; e < part.units.end; ++e) out.insert({part.item, layer, e});
  return out;
}

// Bytes that a device lacks, element by element.
int64_t lacking_bytes(const std::vector<TensorKind>& kinds, const ParamLayout& from,
                      const ParamLayout& to, DeviceId device) {
  const std::set<Element> before = elements_held(kinds, from, device);
  int64_t count = 0;
  for (const Element& element : elements_held(kinds, to, device))
    count += 1 - before.count(element);
  return 4 * count;
}

struct Pair {
  ModelSize model;
  ParamLayout from, to;
  double message_bytes = 1e9;
  int64_t staging_bytes = 1LL << 30;
};

// The plan lists what was sent, of f32; without a message of this rank, or with one that is
// shorter, it does not.
void expect_listed(const std::vector<Message>& messages, const std::vector<TensorKind>& kinds,
                   DeviceId self, const TransferCounts& sent) {
  const ParamLayout whole;  // no slices: FlatStore has them as any other parts
  const auto listed = [&](const std::vector<Message>& plan) {
    TransferCounts out;
    add_listed(messages_of({whole, whole, plan, kinds, kLayers, 4}, self), 3, &out);
    return out;
  };
  EXPECT_EQ(transfer_differences(listed(messages), sent), "");
  for (size_t i = 0; i < messages.size(); ++i) {
    double elements = 0;
    for (const MessagePart& part : messages[i].parts)
      elements += static_cast<double>(part.layers.size() * part.units.size());
    EXPECT_EQ(messages[i].bytes, 4 * elements) << "what is priced";
    if (messages[i].from != self && messages[i].to != self) continue;
    std::vector<Message> fewer = messages, shorter = messages;
    fewer.erase(fewer.begin() + static_cast<int64_t>(i));
    ++shorter[i].parts.back().units.begin;
    for (const auto* plan : {&fewer, &shorter})
      EXPECT_NE(transfer_differences(listed(*plan), sent), "") << i;
  }
}

void expect_reallocated(World& world, const Pair& pair) {
  Communicator& all = **world.everyone();
  const DeviceId self{static_cast<int32_t>(world.global_rank())};
  const auto kinds = tensor_kinds(pair.model, false);
  const Cluster cluster =
      *make_cluster(*find_gpu("a100-80g"), 2, static_cast<int>(world.world_size() / 2));
  const auto messages =
      plan_reallocation(kinds, kLayers, pair.from, pair.to, cluster,
                        {.bytes_per_parameter = 4, .message_bytes = pair.message_bytes});
  std::unique_ptr<FlatStore> before, after;
  if (const auto place = place_in_mesh(pair.from, self)) {
    before = std::make_unique<FlatStore>(kinds, kLayers, pair.from, *place, at::kInt);
    before->each([](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& to) {
      to.copy_(values_of(kind, layer, elements));
    });
  }
  std::vector<MessagePart> kept;
  if (const auto place = place_in_mesh(pair.to, self)) {
    kept = kept_parts(kinds, kLayers, pair.from, pair.to, self);
    after = std::make_unique<FlatStore>(kinds, kLayers, pair.to, *place, at::kInt);
  }
  all.reset_traffic();
  TransferCounts sent;
  auto report = [&] {
    const TransferWatch watch(&sent);
    return reallocate(messages, kept, before.get(), after.get(), all,
                      {.channel = 3, .staging_bytes = pair.staging_bytes});
  }();
  ASSERT_TRUE(report.ok()) << report.status().message();
  expect_listed(messages, kinds, self, sent);
  if (after != nullptr)
    after->each([](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& got) {
      EXPECT_TRUE(at::equal(got, values_of(kind, layer, elements))) << kind << " " << layer;
    });
  // At the c10d call, every byte that is lacking comes once.
  EXPECT_EQ(all.traffic(Transfer::kReceive).received,
            lacking_bytes(kinds, pair.from, pair.to, self));
  const int64_t one_message = static_cast<int64_t>(pair.message_bytes) * 16;
  EXPECT_LE(report->largest_staging_bytes, std::max(pair.staging_bytes, one_message));
}

void random_pairs(World& world, int trials) {
  RandomStream random(23, static_cast<uint64_t>(world.world_size()));
  const int devices = static_cast<int>(world.world_size());
  for (int trial = 0; trial < trials; ++trial) {
    SCOPED_TRACE(cat("pair ", trial));
    Pair pair;
    pair.model = size_of(kFamilies[trial % 7]);
    pair.from = random_layout(&random, devices);
    pair.to = random_layout(&random, devices);
    if (trial % 3 == 1) pair.message_bytes = 4096, pair.staging_bytes = 16384;
    expect_reallocated(world, pair);
  }
}

RANK_TEST(Reallocate, RandomPairs, 4) { random_pairs(world, full_tier() ? 560 : 28); }

DeviceMesh first_devices(int count) {
  DeviceMesh mesh;
  for (int i = 0; i < count; ++i) mesh.devices.push_back(DeviceId{i});
  return mesh;
}

// A store in which one number changes when it is written.
class FaultyStore : public FlatStore {
 public:
  using FlatStore::FlatStore;
  at::Tensor span(int32_t, int64_t, const Interval&) const override { return {}; }
  void read(int32_t kind, int64_t layer, const Interval& elements,
            const at::Tensor& to) const override {
    to.copy_(FlatStore::span(kind, layer, elements));
  }
  void write(int32_t kind, int64_t layer, const Interval& elements,
             const at::Tensor& from) override {
    const at::Tensor place = FlatStore::span(kind, layer, elements);
    place.copy_(from);
    if (kind == 1 && layer == 2) place[0] += 1;
  }
};

// Weights of one half of the ranks for the other, so many of them on each rank at a time.
struct HalfToHalf {
  HalfToHalf(World& world, int64_t staging_bytes, int32_t tp_after, bool compare = false,
             bool faulty = false, int32_t channel = 3) {
    const DeviceId self{static_cast<int32_t>(world.global_rank())};
    Strategy two, after;
    two.tp = 2;
    after.dp = 2 / tp_after, after.tp = tp_after;
    const ParamLayout from = param_layout(first_devices(2), two),
                      to = param_layout({{DeviceId{2}, DeviceId{3}}}, after);
    messages =
        plan_reallocation(kinds, kLayers, from, to, *make_cluster(*find_gpu("a100-80g"), 2, 2),
                          {.bytes_per_parameter = 4, .message_bytes = 1e9});
    if (const auto place = place_in_mesh(from, self)) {
      store = std::make_unique<FlatStore>(kinds, kLayers, from, *place, at::kInt);
      store->each([](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& to) {
        to.copy_(values_of(kind, layer, elements));
      });
    } else {
      const size_t there = *place_in_mesh(to, self);
      if (faulty) store = std::make_unique<FaultyStore>(kinds, kLayers, to, there, at::kInt);
      if (!faulty) store = std::make_unique<FlatStore>(kinds, kLayers, to, there, at::kInt);
    }
    const bool sends = self.value < 2;
    work = std::make_unique<ReallocationRun>(
        messages, sends ? store.get() : nullptr, sends ? nullptr : store.get(), **world.everyone(),
        ReallocateOptions{.channel = channel, .staging_bytes = staging_bytes, .compare = compare});
  }

  const std::vector<TensorKind> kinds = tensor_kinds(size_of("qwen2"), false);
  std::vector<Message> messages;
  std::unique_ptr<FlatStore> store;
  std::unique_ptr<ReallocationRun> work;
};

// What has begun passes while the ranks do other things together, and several plans at once: also
// what waits for room to stage, or for what it passes on.
RANK_TEST(Reallocate, PassesBesideWhatRanksDo, 4) {
  Communicator& all = **world.everyone();
  for (const int64_t staging_bytes : {int64_t{1} << 30, int64_t{1}}) {
    HalfToHalf first(world, staging_bytes, 1),
        second(world, staging_bytes, 2, false, false, /*channel=*/4);
    ASSERT_EQ(first.work->start({}).message(), "");
    ASSERT_EQ(second.work->start({}).message(), "");
    ASSERT_EQ(all.barrier("beside it").message(), "");
    ASSERT_EQ(first.work->finish().message(), "");
    ASSERT_EQ(second.work->finish().message(), "");
    for (const HalfToHalf* each : {&first, &second})
      each->store->each(
          [](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& got) {
            EXPECT_TRUE(at::equal(got, values_of(kind, layer, elements))) << kind << " " << layer;
          });
  }
}

// A rank that passes on what it gets does so before it waits for the end: the rank behind it has
// all when that rank waits for nothing yet.
RANK_TEST(Reallocate, RelaysGoOnWhileTheirRankDoesOtherThings, 3) {
  const int64_t rank = world.global_rank();
  const std::vector<TensorKind> kinds = tensor_kinds(size_of("qwen2"), false);
  const auto held = [&](int device) {
    return held_parts(kinds, kLayers, param_layout({{DeviceId{device}}}, Strategy()), 0);
  };
  std::vector<Message> chain(2);
  chain[0].from = DeviceId{0}, chain[0].to = DeviceId{1}, chain[0].parts = held(0);
  chain[1] = chain[0];
  chain[1].from = DeviceId{1}, chain[1].to = DeviceId{2}, chain[1].slot = 1, chain[1].depth = 1;
  FlatStore store(kinds, kLayers, param_layout({{DeviceId{static_cast<int>(rank)}}}, Strategy()), 0,
                  at::kInt);
  if (rank == 0)
    store.each([](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& to) {
      to.copy_(values_of(kind, layer, elements));
    });
  Communicator& all = **world.everyone();
  TransferCounts sent;
  const TransferWatch watch(&sent);
  ReallocationRun run(chain, rank == 0 ? &store : nullptr, rank == 0 ? nullptr : &store, all,
                      {.channel = 3});
  ASSERT_EQ(run.start({}).message(), "");
  if (rank != 1) {
    ASSERT_EQ(run.finish().message(), "");
  }
  ASSERT_EQ(all.barrier("the last rank has all").message(), "");
  if (rank == 1) {
    ASSERT_EQ(run.finish().message(), "");
  }
  store.each([](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& got) {
    EXPECT_TRUE(at::equal(got, values_of(kind, layer, elements))) << kind << " " << layer;
  });
  const TransferCounts beside = run.begun_beside();
  EXPECT_EQ(beside.empty(), rank != 1);
  for (const auto& [kind, count] : beside) {
    EXPECT_EQ(kind.transfer, Transfer::kSend);
    EXPECT_EQ(sent.count(kind), 0u) << "counted by whoever watches the rank's own thread";
  }
}

// A relay waits for what it passes on, not for what comes beside it: here the rank behind it sends
// the other half once it has the first.
RANK_TEST(Reallocate, RelaysWaitForWhatTheyPassOnAlone, 3) {
  const int64_t rank = world.global_rank();
  const std::vector<TensorKind> kinds = tensor_kinds(size_of("qwen2"), false);
  const ParamLayout own = param_layout({{DeviceId{static_cast<int>(rank)}}}, Strategy());
  const std::vector<MessagePart> all = held_parts(kinds, kLayers, own, 0);
  const auto message = [&](int from, int to, int slot, int depth, size_t begin, size_t end) {
    Message out;
    out.from = DeviceId{from}, out.to = DeviceId{to}, out.slot = slot, out.depth = depth;
    out.parts.assign(all.begin() + begin, all.begin() + end);
    return out;
  };
  const size_t half = all.size() / 2;
  const Message comes = message(0, 1, 0, 0, 0, half), other = message(2, 1, 1, 0, half, all.size()),
                goes_on = message(1, 2, 1, 1, 0, half);
  FlatStore store(kinds, kLayers, own, 0, at::kInt);
  store.each([&](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& to) {
    if (rank != 1) to.copy_(values_of(kind, layer, elements));
  });
  const auto moves = [&](const std::vector<Message>& messages) {
    ReallocationRun run(messages, rank == 1 ? nullptr : &store, rank == 0 ? nullptr : &store,
                        **world.everyone(), {.channel = 3});
    Status status = run.start({});
    if (status.ok()) status = run.finish();
    return status.message();
  };
  if (rank == 2) {
    EXPECT_EQ(moves({goes_on}), "");
    EXPECT_EQ(moves({other}), "");
  } else {
    EXPECT_EQ(moves({comes, other, goes_on}), "");
  }
  store.each([](int32_t kind, int64_t layer, const Interval& elements, const at::Tensor& got) {
    EXPECT_TRUE(at::equal(got, values_of(kind, layer, elements))) << kind << " " << layer;
  });
}

// A run that nobody waits for ends, whatever its thread waits for.
RANK_TEST(Reallocate, EndsWithoutWhatHasNotCome, 2) {
  const std::vector<TensorKind> kinds = tensor_kinds(size_of("qwen2"), false);
  const ParamLayout own =
      param_layout({{DeviceId{static_cast<int>(world.global_rank())}}}, Strategy());
  Message comes;
  comes.from = DeviceId{1}, comes.to = DeviceId{0};
  comes.parts = held_parts(kinds, kLayers, own, 0);
  Message on = comes;
  on.from = DeviceId{0}, on.to = DeviceId{1}, on.slot = 1, on.depth = 1;
  if (world.global_rank() == 0) {
    FlatStore store(kinds, kLayers, own, 0, at::kInt);
    const std::vector<Message> messages = {comes, on};
    ReallocationRun run(messages, nullptr, &store, **world.everyone(), {.channel = 3});
    ASSERT_EQ(run.start({}).message(), "");
  }
  ASSERT_EQ((*world.everyone())->barrier("it has ended").message(), "");
}

// Where hashes are compared the rank that has other numbers than were sent names them and who sent
// them; the others end well. Without a fault, hashes change nothing.
RANK_TEST(Reallocate, OtherNumbersThanWereSentAreNamed, 4) {
  const int64_t rank = world.global_rank();
  for (const bool faulty : {false, true}) {
    HalfToHalf move(world, int64_t{1} << 30, 2, true, faulty && rank == 3);
    ASSERT_EQ(move.work->start({}).message(), "");
    const std::string said = move.work->finish().message();
    if (faulty && rank == 3) {
      EXPECT_NE(said.find("of kind 1 in layer 2: rank 3 has them with SHA-256 "), std::string::npos)
          << said;
      EXPECT_NE(said.find(", rank 1 sent them with SHA-256 "), std::string::npos) << said;
    } else {
      EXPECT_EQ(said, "");
    }
    ASSERT_TRUE((*world.everyone())->barrier("all have moved").ok());
  }
}

}  // namespace
}  // namespace braid::inline weights
