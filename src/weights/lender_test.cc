// A copy in another layout has the memory of its home copy for what prices say that both hold
// alike, and memory of its own for all else: number by number, for every family.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "nn/decoder.h"
#include "nn/test_models.h"
#include "program/local_parts.h"
#include "program/tensor_map.h"

namespace braid::inline weights {
namespace {

constexpr int64_t kDepth = 4;

Strategy grid(int dp, int tp, int pp, std::vector<int64_t> stage_layers = {}, int interleave = 1) {
  Strategy out;
  out.dp = dp, out.tp = tp, out.pp = pp, out.interleave = interleave;
  out.stage_layers = std::move(stage_layers);
  return out;
}

// Over four devices.
const std::vector<Strategy>& grids() {
  static const std::vector<Strategy> all = {
      grid(4, 1, 1),         grid(2, 2, 1), grid(1, 4, 1),        grid(2, 1, 2),
      grid(2, 1, 2, {1, 3}), grid(1, 2, 2), grid(1, 2, 2, {}, 2), grid(1, 1, 4)};
  return all;
}

ParamLayout layout_of(const Strategy& strategy, const std::vector<int32_t>& devices) {
  DeviceMesh mesh;
  for (const int32_t device : devices) mesh.devices.push_back(DeviceId{device});
  return param_layout(mesh, strategy);
}

ModelOptions part_options(const ParamLayout& layout, DeviceId device) {
  const GridPosition at = *place_in_grid(layout, device);
  ModelOptions options;
  options.tensor_parallel.tp_rank = at.tp_rank;
  options.tensor_parallel.tp_size = layout.tp;
  for (int chunk = 0; chunk < layout.interleave; ++chunk) {
    const Interval layers = part_layers(layout, kDepth, chunk * layout.pp + at.stage);
    options.ranges.push_back({layers.begin, layers.end});
  }
  return options;
}

// Numbers of the copy that lie in none of the home copy's memory.
int64_t own_numbers(const Decoder& copy, const Decoder& home) {
  std::set<const void*> lent;
  for (const auto& [name, tensor] : home.parameters())
    lent.insert(tensor.storage().unsafeGetStorageImpl());
  int64_t sum = 0;
  for (const auto& [name, tensor] : copy.parameters())
    if (lent.count(tensor.storage().unsafeGetStorageImpl()) == 0) sum += tensor.numel();
  return sum;
}

// What a device keeps of a home copy for one in another layout; whether the family can be cut so.
bool expect_as_priced(const ModelSpec& spec, const ParamLayout& home, const ParamLayout& copy,
                      DeviceId device) {
  const ModelOptions held = part_options(home, device), wanted = part_options(copy, device);
  if (!Decoder::validate_options(spec, held).ok() || !Decoder::validate_options(spec, wanted).ok())
    return false;
  const Decoder lender(spec, held);
  const Decoder taker(spec, wanted, &lender);
  const auto kinds = kinds_of(tensor_map(spec));
  const int64_t all = elements_of(held_parts(kinds, kDepth, copy, *place_in_mesh(copy, device)));
  const int64_t alike = elements_of(alike_parts(kinds, kDepth, home, copy, device));
  EXPECT_EQ(own_numbers(taker, lender), all - alike);
  return true;
}

TEST(Lender, GivesWhatPricesSay) {
  for (const char* family : {"llama", "qwen2", "qwen3", "gemma", "gemma3", "phi3", "gpt2"}) {
    ModelSpec spec = small_spec(family);
    spec.layers = kDepth;
    int compared = 0;
    for (const Strategy& from : grids())
      for (const Strategy& to : grids())
        for (const std::vector<int32_t>& devices :
             {std::vector<int32_t>{0, 1, 2, 3}, std::vector<int32_t>{2, 1, 3, 0}})
          for (int32_t device = 0; device < 4; ++device) {
            SCOPED_TRACE(cat(family, ": dp ", from.dp, " tp ", from.tp, " pp ", from.pp, " to dp ",
                             to.dp, " tp ", to.tp, " pp ", to.pp, ", device ", device, ", ",
                             devices[0]));
            compared += expect_as_priced(spec, layout_of(from, {0, 1, 2, 3}),
                                         layout_of(to, devices), DeviceId{device});
          }
    EXPECT_GT(compared, 100) << family;
  }
}

TEST(Lender, SeesWhatIsWrittenAndKeepsItsOwnLeaves) {
  ModelSpec spec = small_spec("qwen2");
  spec.layers = kDepth;
  ModelOptions half;
  half.ranges = {{1, 3}};
  Decoder home(spec, half);
  Decoder copy(spec, {}, &home);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : home.parameters()) tensor.fill_(3);
  int shared = 0;
  std::map<std::string, at::Tensor> ours;
  for (const auto& [name, tensor] : copy.parameters()) ours[name] = tensor;
  for (const auto& [name, tensor] : home.parameters()) {
    EXPECT_TRUE(ours.at(name).is_alias_of(tensor)) << name;
    EXPECT_FALSE(ours.at(name).is_same(tensor)) << name;
    EXPECT_TRUE(ours.at(name).is_leaf() && ours.at(name).requires_grad()) << name;
    EXPECT_EQ(ours.at(name).sum().item<double>(), 3.0 * tensor.numel()) << name;
    ++shared;
  }
  EXPECT_GT(shared, 10);
  copy.weights_changed();  // the parts of joined matrices are views of them
}

}  // namespace
}  // namespace braid::inline weights
