// Reallocation beside raw Gloo messages of the same bytes between the same ranks, in one run.
// Usage: reshard_bench [RANKS [MIB_PER_COPY]]
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/text.h"
#include "dataflow/graph.h"
#include "program/local_parts.h"
#include "rank_bench.h"
#include "weights/reallocate.h"
#include "weights/test_store.h"

namespace braid {
namespace {

constexpr int kRepeats = 5;
constexpr int64_t kLayers = 8;

// A model of about so many parameters.
ModelSize model_of(int64_t parameters) {
  ModelSize model;
  model.name = "bench";
  model.layers = kLayers, model.heads = model.kv_heads = 8, model.vocab = 8192;
  model.hidden = 64;
  while (total_params(model) < parameters) {
    model.hidden += 64;
    model.head_dim = model.hidden / 8;
    model.intermediate = 4 * model.hidden;
  }
  return model;
}

ParamLayout layout_of(int first, int dp, int tp, int pp) {
  DeviceMesh mesh;
  for (int i = 0; i < dp * tp * pp; ++i) mesh.devices.push_back(DeviceId{first + i});
  Strategy strategy;
  strategy.dp = dp, strategy.tp = tp, strategy.pp = pp;
  return param_layout(mesh, strategy);
}

struct Case {
  const char* name;
  ParamLayout from, to;
};

std::vector<Case> cases(int ranks) {
  const int half = ranks / 2;
  return {
      {"one half of the ranks to the other", layout_of(0, 1, half, 1), layout_of(half, 1, half, 1)},
      {"tensor parallel to whole copies", layout_of(0, 1, ranks, 1), layout_of(0, ranks, 1, 1)},
      {"stages to tensor parallel", layout_of(0, 1, 1, ranks), layout_of(0, 1, ranks, 1)},
      {"copies on one half to stages on the other", layout_of(0, half, 1, 1),
       layout_of(half, 1, 1, half)}};
}

// One message of the same bytes for each message of the plan, from memory that is there.
Status send_raw(const std::vector<Message>& messages, Communicator& all, int64_t self) {
  std::vector<Pending> pending;
  static std::map<size_t, at::Tensor> buffers;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (message.from.value != self && message.to.value != self) continue;
    at::Tensor& buffer = buffers[i];
    const auto count = static_cast<int64_t>(message.bytes / 4);
    if (!buffer.defined() || buffer.numel() < count) buffer = at::zeros({count}, at::kFloat);
    const at::Tensor data = buffer.narrow(0, 0, count);
    pending.push_back(message.from.value == self ? all.send(data, message.to.value, 1, "raw")
                                                 : all.receive(data, message.from.value, 1, "raw"));
  }
  for (Pending& each : pending) BRAID_TRY(each.wait());
  return {};
}

template <typename Work>
Result<double> best_of(Communicator& all, const Work& work) {
  double best = 1e30;
  for (int i = 0; i < kRepeats; ++i) {
    BRAID_ASSIGN(const double taken_s, timed(all, work));
    best = std::min(best, taken_s);
  }
  return best;
}

Status run_case(World& world, const Case& test, int64_t parameters) {
  BRAID_ASSIGN(Communicator * all, world.everyone());
  const DeviceId self{static_cast<int32_t>(world.global_rank())};
  const ModelSize model = model_of(parameters);
  const auto kinds = tensor_kinds(model, false);
  const Cluster cluster =
      *make_cluster(*find_gpu("a100-80g"), 1, static_cast<int>(world.world_size()));
  const auto messages =
      plan_reallocation(kinds, kLayers, test.from, test.to, cluster, {.bytes_per_parameter = 4});
  std::unique_ptr<FlatStore> before, after;
  if (const auto place = place_in_mesh(test.from, self))
    before = std::make_unique<FlatStore>(kinds, kLayers, test.from, *place, at::kFloat);
  if (const auto place = place_in_mesh(test.to, self))
    after = std::make_unique<FlatStore>(kinds, kLayers, test.to, *place, at::kFloat);
  if (before) before->each([](auto, auto, const auto&, const at::Tensor& x) { x.zero_(); });
  if (after) after->each([](auto, auto, const auto&, const at::Tensor& x) { x.zero_(); });
  const auto kept = kept_parts(kinds, kLayers, test.from, test.to, self);
  BRAID_ASSIGN(const double ours_s, best_of(*all, [&]() -> Status {
                 return reallocate(messages, kept, before.get(), after.get(), *all, {}).status();
               }));
  BRAID_ASSIGN(const double raw_s,
               best_of(*all, [&] { return send_raw(messages, *all, self.value); }));
  double bytes = 0;
  for (const Message& message : messages) bytes += message.bytes;
  if (self.value == 0)
    std::printf("%-44s %10s  reallocate %7.1f ms  raw %7.1f ms  %3.0f %%\n", test.name,
                format_bytes(bytes).c_str(), ours_s * 1e3, raw_s * 1e3, 100 * raw_s / ours_s);
  return {};
}

Status run_cases(World& world, int64_t mib) {
  for (const Case& test : cases(static_cast<int>(world.world_size())))
    BRAID_TRY(run_case(world, test, mib * (1 << 20) / 4));
  return {};
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  using namespace braid;
  const int64_t mib = argument(argc, argv, 2, 256);
  return run_ranks(argument(argc, argv, 1, 4), argc, argv,
                   [&](World& world) { return run_cases(world, mib); });
}
