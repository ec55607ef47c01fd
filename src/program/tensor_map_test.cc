#include "program/tensor_map.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "models/adapter_targets.h"

namespace braid::inline program {
namespace {

// Small models of every family, with and without what they may have.
std::vector<ModelSpec> specs() {
  std::vector<ModelSpec> out;
  for (const ModelFamily& family : model_families())
    for (const int variant : {0, 1, 2, 3}) {
      ModelSpec spec;
      spec.family = family.name;
      spec.layers = 3, spec.hidden = 12, spec.intermediate = 10, spec.vocab = 14;
      spec.heads = 6, spec.kv_heads = 2, spec.head_dim = 4, spec.max_positions = 5;
      spec.tied_embeddings = variant % 2 == 1, spec.scalar_head = variant > 1;
      spec.qkv_bias = family.name == "qwen2" || variant == 3;
      spec.qk_norm = !family.names.query_norm.empty();
      if (family.name == "gpt2") {
        spec.head_dim = 2, spec.kv_heads = 6;
        spec.norm = NormKind::kLayer, spec.gated_mlp = false, spec.learned_positions = 5;
        spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
      }
      out.push_back(spec);
    }
  return out;
}

using Cells = std::map<std::string, std::map<std::pair<int64_t, int64_t>, int>>;

// How often each number of each tensor is in a region.
void count(const std::vector<TensorRegion>& regions, Cells* cells) {
  for (const TensorRegion& region : regions)
    for (int64_t row = region.rows.begin; row < region.rows.end; ++row)
      for (int64_t column = region.columns.begin; column < region.columns.end; ++column)
        ++(*cells)[region.tensor][{row, column}];
}

std::vector<int64_t> layers_of(const TensorKind& kind) {
  std::vector<int64_t> out;
  for (int64_t layer = kind.layer_begin; layer < kind.layer_end; ++layer) out.push_back(layer);
  if (out.empty()) out.push_back(0);
  return out;
}

TEST(TensorMap, KindsPartitionTheTensorsOfEveryFamily) {
  for (const ModelSpec& spec : specs()) {
    const TensorMap map = tensor_map(spec);
    Cells cells;
    for (size_t item = 0; item < map.kinds.size(); ++item)
      for (const int64_t layer : layers_of(map.kinds[item].kind))
        count(tensor_regions(map, static_cast<int32_t>(item), layer,
                             {0, map.kinds[item].kind.elements}),
              &cells);
    for (const TensorSpec& tensor : model_tensors(spec, 0, spec.layers)) {
      const int64_t columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
      const auto found = cells.find(tensor.name);
      ASSERT_NE(found, cells.end()) << spec.family << " " << tensor.name;
      EXPECT_EQ(found->second.size(), tensor.shape[0] * columns) << tensor.name;
      for (const auto& [cell, times] : found->second) {
        EXPECT_EQ(times, 1) << tensor.name;
        EXPECT_LT(cell.first, tensor.shape[0]);
        EXPECT_LT(cell.second, columns);
      }
      cells.erase(found);
    }
    EXPECT_TRUE(cells.empty()) << spec.family << " has no " << cells.begin()->first;
  }
}

// Any cut of a kind's elements gives the same numbers in the same order.
TEST(TensorMap, ElementsKeepTheirOrderUnderAnyCut) {
  RandomStream random(1, 0);
  for (const ModelSpec& spec : specs()) {
    const TensorMap map = tensor_map(spec);
    for (size_t item = 0; item < map.kinds.size(); ++item) {
      const int64_t all = map.kinds[item].kind.elements;
      int64_t at = 0;
      Cells cells;
      while (at < all) {
        const int64_t end = at + 1 + static_cast<int64_t>(random.below(all - at));
        for (const TensorRegion& region :
             tensor_regions(map, static_cast<int32_t>(item), 1, {at, end})) {
          EXPECT_EQ(region.begin, at);
          at += region.rows.size() * region.columns.size();
          count({region}, &cells);
        }
        EXPECT_EQ(at, end);
      }
      for (const auto& [tensor, numbers] : cells)
        for (const auto& [cell, times] : numbers) EXPECT_EQ(times, 1) << tensor;
    }
  }
}

TEST(TensorMap, RanksOfAKeyValueHeadHoldItsRowsOfBothMatrices) {
  ModelSpec spec = specs()[0];
  const TensorMap map = tensor_map(spec);
  ASSERT_EQ(map.kinds[2].kind.name, "key_value");
  const int64_t head = 4 * spec.hidden;
  EXPECT_EQ(tensor_regions(map, 2, 2, {2 * head, 4 * head}),
            (std::vector<TensorRegion>{
                {"model.layers.2.self_attn.k_proj.weight", {4, 8}, {0, 12}, 2 * head},
                {"model.layers.2.self_attn.v_proj.weight", {4, 8}, {0, 12}, 3 * head}}));
}

TEST(TensorMap, KindsHaveTheNamesAndUnitsOfThePlanners) {
  for (const char* family : {"llama", "gemma2", "phi3"}) {
    ModelSpec spec = specs()[0];
    spec.family = family;
    spec.layer_norms = norms_of_layer(family_of(spec).names);
    EXPECT_EQ(kinds_of(tensor_map(spec)), tensor_kinds(spec, false)) << family;
  }
}

TEST(TensorMap, AdaptersOfEveryLinearLayerOccurOnce) {
  for (const ModelSpec& spec : specs()) {
    const TensorMap map = adapter_map(spec, 3, {kAllLinear, kLmHeadModule});
    Cells cells;
    int64_t numbers = 0, expected = 0;
    for (size_t item = 0; item < map.kinds.size(); ++item)
      count(tensor_regions(map, static_cast<int32_t>(item), 1, {0, map.kinds[item].kind.elements}),
            &cells);
    for (const TensorSpec& tensor : model_tensors(spec, 1, 2)) {
      if (tensor.shape.size() < 2) continue;
      const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
      for (const auto& [end, size] : {std::pair(".lora_A.weight", 3 * tensor.shape[1]),
                                      std::pair(".lora_B.weight", 3 * tensor.shape[0])}) {
        EXPECT_EQ(cells["base_model.model." + module + end].size(), size) << module;
        expected += size;
      }
    }
    const int64_t head = spec.tied_embeddings ? 0 : 3 * (spec.vocab + spec.hidden);
    expected += spec.scalar_head ? spec.hidden : head;
    for (const auto& [tensor, cells_of] : cells)
      for (const auto& [cell, times] : cells_of) numbers += times;
    EXPECT_EQ(numbers, expected);
  }
}

TEST(TensorMap, OnlyTargetsHaveAdapters) {
  const ModelSpec spec = specs()[0];
  const TensorMap map = adapter_map(spec, 3, {"v_proj"});
  Cells cells;
  for (size_t item = 0; item < map.kinds.size(); ++item)
    count(tensor_regions(map, static_cast<int32_t>(item), 1, {0, map.kinds[item].kind.elements}),
          &cells);
  const std::string module = "base_model.model.model.layers.1.self_attn.v_proj";
  EXPECT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[module + ".lora_A.weight"].size(), 3 * spec.hidden);
  EXPECT_EQ(cells[module + ".lora_B.weight"].size(), 3 * spec.kv_heads * spec.head_dim);
}

}  // namespace
}  // namespace braid::inline program
