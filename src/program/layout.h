// The layout of a model's parameters: which slice of which tensor lives on which device under a
// mesh and a strategy. Every slice is an interval of elements of one tensor, counted in the order
// in which tensor parallelism cuts it, so that any two layouts of a model meet in intervals. Pure
// values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "dataflow/graph.h"
#include "models/size.h"
#include "plan/execution_plan.h"

namespace braid::inline program {

// A tensor that every layer of a range has, or one of the model's ends. Tensor parallelism gives
// each rank whole units (attention heads, columns of the MLP, vocabulary rows); with fewer units
// than ranks, ranks share a unit, and one unit means replication.
struct TensorKind {
  std::string name;
  int64_t elements = 0;     // of one layer
  int64_t units = 1;        // divides elements
  int32_t layer_begin = 0;  // layers that have it; an end of the model has none
  int32_t layer_end = 0;
  bool first = false;   // held by the first part of the model
  bool last = false;    // held by the last part
  bool routed = false;  // experts, which have a grid of their own
  // Of one unit, and every tensor-parallel rank computes a part of its gradient.
  bool partial = false;
  friend bool operator==(const TensorKind&, const TensorKind&) = default;
};
// All tensors of a model; their elements sum to total_params(). A scalar head replaces the
// vocabulary's, a value head is one beside it. Extra prediction layers count as one replicated
// tensor at the end.
std::vector<TensorKind> tensor_kinds(const ModelSize& model, bool scalar_head,
                                     bool value_head = false);
// Of a role's model; null: a language model.
std::vector<TensorKind> tensor_kinds(const ModelSize& model, const RoleSpec* role);

// What of a strategy places parameters. Context-parallel ranks hold the same and count as dp.
struct ParamLayout {
  DeviceMesh mesh;
  int dp = 1, tp = 1, pp = 1, interleave = 1;
  bool sharded = false;  // ZeRO-3: each tensor-parallel slice is cut over `shards` of dp
  std::vector<int64_t> stage_layers = {};  // as in Strategy
  int shards = 1;
  int ep = 1, expert_tp = 1;  // routed experts: parts of a layer's, and of each
  friend bool operator==(const ParamLayout&, const ParamLayout&) = default;
};
ParamLayout param_layout(const DeviceMesh& mesh, const Strategy& strategy);

// Position of a device in a strategy's grid (plan/execution_plan.h).
struct GridPosition {
  int dp_rank = 0, tp_rank = 0, stage = 0, cp_rank = 0;
  friend bool operator==(const GridPosition&, const GridPosition&) = default;
};
GridPosition grid_position(const Strategy& strategy, size_t mesh_index);
size_t mesh_index(const Strategy& strategy, const GridPosition& position);
// Which of the dense_copies() a position holds.
inline int copy_rank(const Strategy& strategy, const GridPosition& position) {
  return position.dp_rank * strategy.cp + position.cp_rank;
}
// The grid in which a layout places parameters.
Strategy layout_grid(const ParamLayout& layout);

struct Interval {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};
// Elements of one tensor of a kind that a position holds, whatever its stage.
Interval held_elements(const TensorKind& kind, const ParamLayout& layout,
                       const GridPosition& position);
// Layers of a part of the model when `layers` are cut into `parts` runs, longer ones first.
Interval layers_of_part(int64_t layers, int64_t parts, int64_t part);
// Layers of a part of a strategy or layout: as its stage_layers say, else even runs.
template <typename Cut>
Interval part_layers(const Cut& cut, int64_t layers, int64_t part) {
  if (cut.stage_layers.empty())
    return layers_of_part(layers, int64_t{cut.pp} * cut.interleave, part);
  int64_t begin = 0;
  for (int64_t before = 0; before < part; ++before) begin += cut.stage_layers[before];
  return {begin, begin + cut.stage_layers[part]};
}
// Layers of a kind that a stage holds, of each virtual pipeline stage one interval; an end of the
// model is the run [0, 1).
std::vector<Interval> held_layers(const TensorKind& kind, const ParamLayout& layout, int64_t layers,
                                  int stage);

// Parameters held by the device at a mesh index.
double held_parameters(const std::vector<TensorKind>& kinds, const ParamLayout& layout,
                       int64_t layers, size_t mesh_index);

}  // namespace braid::inline program
