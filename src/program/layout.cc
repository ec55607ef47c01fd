#include "program/layout.h"

#include <algorithm>

namespace braid::inline program {
namespace {

// The part of an interval that one of `count` ranks gets when elements are partitioned evenly.
Interval even_share(const Interval& whole, int64_t count, int64_t rank) {
  return {whole.begin + whole.size() * rank / count,
          whole.begin + whole.size() * (rank + 1) / count};
}

void add_attention(const ModelSize& m, std::vector<TensorKind>* out) {
  const auto layers = static_cast<int32_t>(m.layers);
  const auto add = [&](const char* name, int64_t elements, int64_t units) {
    if (elements > 0) out->push_back({name, elements, units, 0, layers, false, false});
  };
  if (m.mla) {
    const int64_t down =
        m.hidden * (m.mla->kv_lora_rank + m.mla->qk_rope_head_dim) + m.hidden * m.mla->q_lora_rank;
    add("attention_latent", down, 1);
    add("attention", attention_params(m) - down, m.heads);
    return;
  }
  const int64_t query = m.hidden * m.head_dim * m.heads;
  add("query", query, m.heads);
  add("key_value", 2 * m.hidden * m.head_dim * m.kv_heads, m.kv_heads);
  out->back().partial = m.kv_heads == 1;
  add("output", query, m.heads);
}

void add_mlp(const ModelSize& m, std::vector<TensorKind>* out) {
  const auto layers = static_cast<int32_t>(m.layers);
  const auto dense = static_cast<int32_t>(m.layers - moe_layers(m));
  if (dense > 0)
    out->push_back({"mlp", dense_mlp_params(m), m.intermediate, 0, dense, false, false});
  if (dense == layers) return;
  const int64_t routed = m.experts * expert_params(m), shared = m.shared_experts * expert_params(m);
  out->push_back({"experts", routed, m.expert_intermediate, dense, layers, false, false, true});
  if (shared > 0)
    out->push_back(
        {"shared_experts", shared, m.expert_intermediate, dense, layers, false, false, false});
  out->push_back({"router", moe_layer_params(m) - routed - shared, 1, dense, layers, false, false});
}

}  // namespace

std::vector<TensorKind> tensor_kinds(const ModelSize& model, const RoleSpec* role) {
  return role == nullptr ? tensor_kinds(model, false)
                         : tensor_kinds(model, role->scalar_head, role->value_head);
}

std::vector<TensorKind> tensor_kinds(const ModelSize& m, bool scalar_head, bool value_head) {
  const auto layers = static_cast<int32_t>(m.layers);
  std::vector<TensorKind> out;
  const int64_t rows = head_params(m);  // vocabulary rows
  const bool tied = m.tied_embeddings && !scalar_head;
  out.push_back({"embedding", rows, m.vocab, 0, 0, true, tied});
  if (embedding_params(m) > rows)
    out.push_back({"positions", embedding_params(m) - rows, 1, 0, 0, true, false});
  add_attention(m, &out);
  add_mlp(m, &out);
  out.push_back({"norms", m.layer_norms * m.hidden, 1, 0, layers, false, false});
  out.push_back({"final_norm", m.hidden, 1, 0, 0, false, true});
  if (scalar_head) out.push_back({"scalar_head", m.hidden, 1, 0, 0, false, true});
  if (!scalar_head && !tied) out.push_back({"head", rows, m.vocab, 0, 0, false, true});
  if (value_head) out.push_back({"scalar_head", m.hidden, 1, 0, 0, false, true});
  if (m.mtp_layers > 0 && !scalar_head) {
    const int64_t each = attention_params(m) + moe_layer_params(m) + 2 * m.hidden * m.hidden;
    out.push_back({"prediction_layers", m.mtp_layers * each, 1, 0, 0, false, true});
  }
  return out;
}

ParamLayout param_layout(const DeviceMesh& mesh, const Strategy& s) {
  const bool sharded = s.zero_stage == 3 && zero_ranks(s) > 1;
  return {mesh,         dense_copies(s), s.tp,           s.pp,
          s.interleave, sharded,         s.stage_layers, sharded ? zero_ranks(s) : 1,
          s.ep,         expert_tp(s)};
}

GridPosition grid_position(const Strategy& s, size_t mesh_index) {
  const int index = static_cast<int>(mesh_index);
  return {index / (s.tp * s.cp) % s.dp, index % s.tp, index / (s.tp * s.cp * s.dp),
          index / s.tp % s.cp};
}

size_t mesh_index(const Strategy& s, const GridPosition& p) {
  return ((static_cast<size_t>(p.stage) * s.dp + p.dp_rank) * s.cp + p.cp_rank) * s.tp + p.tp_rank;
}

Strategy layout_grid(const ParamLayout& layout) {
  Strategy grid;
  grid.dp = layout.dp, grid.tp = layout.tp, grid.pp = layout.pp;
  return grid;
}

namespace {

// Experts in the order of their numbers: neighbours share one, the next group has the next part.
Interval held_experts(const TensorKind& kind, const ParamLayout& layout,
                      const GridPosition& position) {
  const int parts = layout.ep * layout.expert_tp;
  const int rank = position.dp_rank * layout.tp + position.tp_rank;
  const Interval part = even_share({0, kind.elements}, parts, rank % parts);
  if (!layout.sharded) return part;
  const int shards = std::max(1, layout.shards * layout.tp / parts);
  return even_share(part, shards, rank / parts % shards);
}

}  // namespace

Interval held_elements(const TensorKind& kind, const ParamLayout& layout,
                       const GridPosition& position) {
  if (kind.routed && (layout.ep > 1 || layout.expert_tp != layout.tp))
    return held_experts(kind, layout, position);
  const int64_t per_unit = kind.elements / kind.units;
  const int64_t begin = kind.units * position.tp_rank / layout.tp;
  const int64_t end = std::max(kind.units * (position.tp_rank + 1) / layout.tp, begin + 1);
  const Interval slice{begin * per_unit, end * per_unit};
  return layout.sharded ? even_share(slice, layout.shards, position.dp_rank % layout.shards)
                        : slice;
}

Interval layers_of_part(int64_t layers, int64_t parts, int64_t part) {
  const int64_t base = layers / parts, longer = layers % parts;
  const int64_t begin = part * base + std::min(part, longer);
  return {begin, begin + base + (part < longer ? 1 : 0)};
}

std::vector<Interval> held_layers(const TensorKind& kind, const ParamLayout& layout, int64_t layers,
                                  int stage) {
  std::vector<Interval> out;
  if (kind.layer_begin == kind.layer_end) {
    const bool here = (kind.first && stage == 0) || (kind.last && stage == layout.pp - 1);
    if (here) out.push_back({0, 1});
    return out;
  }
  for (int64_t chunk = 0; chunk < layout.interleave; ++chunk) {
    Interval run = part_layers(layout, layers, chunk * layout.pp + stage);
    run.begin = std::max<int64_t>(run.begin, kind.layer_begin);
    run.end = std::min<int64_t>(run.end, kind.layer_end);
    if (run.size() <= 0) continue;
    if (!out.empty() && out.back().end == run.begin) {
      out.back().end = run.end;
    } else {
      out.push_back(run);
    }
  }
  return out;
}

double held_parameters(const std::vector<TensorKind>& kinds, const ParamLayout& layout,
                       int64_t layers, size_t mesh_index) {
  const GridPosition position = grid_position(layout_grid(layout), mesh_index);
  double sum = 0;
  for (const TensorKind& kind : kinds) {
    const auto elements = static_cast<double>(held_elements(kind, layout, position).size());
    for (const Interval& run : held_layers(kind, layout, layers, position.stage))
      sum += elements * static_cast<double>(run.size());
  }
  return sum;
}

}  // namespace braid::inline program
