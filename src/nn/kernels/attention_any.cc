// Attention as a composition of ATen operators, for devices without a kernel of ours: rectangles of
// sequences (padded_batch.h), gradients by autograd. Where scores have no cap, libtorch's fused
// attention computes a rectangle; else scores are written out in f32.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "nn/kernels/kernels.h"
#include "nn/kernels/padded_batch.h"

namespace braid::inline nn {
namespace {

// Keys or values of a group, [B, K, L, D].
struct GroupKeys {
  at::Tensor keys, values;
};

at::Tensor by_head(const at::Tensor& rows, const PaddedGroup& group, int64_t count) {
  return rows.view({group.sequences, count, rows.size(1), rows.size(2)}).transpose(1, 2);
}

at::Tensor from_pages(const at::Tensor& pages_PBKD, const PaddedGroup& group) {
  return by_head(pages_PBKD.index_select(0, group.pages).flatten(0, 1), group, group.keys);
}

GroupKeys keys_of(const at::Tensor& k_TKD, const at::Tensor& v_TKD, const PaddedGroup& group,
                  const KvLayer* layer) {
  if (layer != nullptr)
    return {from_pages(layer->keys.permute({0, 3, 1, 2}), group),
            from_pages(layer->values.permute({0, 2, 1, 3}), group)};
  return {by_head(take_rows(k_TKD, group.key_rows), group, group.keys),
          by_head(take_rows(v_TKD, group.key_rows), group, group.keys)};
}

// [B, A, L, D]: each key/value head once for every query head of its group.
at::Tensor for_query_heads(const at::Tensor& x_BKLD, int64_t heads) {
  const int64_t group = heads / x_BKLD.size(1);
  if (group == 1) return x_BKLD;
  const at::IntArrayRef size = x_BKLD.sizes();
  return x_BKLD.unsqueeze(2).expand({size[0], size[1], group, size[2], size[3]}).flatten(1, 2);
}

// [1, 1, Q, Q]: what hides later keys where a group has no bias.
at::Tensor causal_bias(int64_t queries, at::Device device) {
  const at::Tensor position = at::arange(queries, at::TensorOptions(at::kFloat).device(device));
  const at::Tensor later = position.unsqueeze(0) > position.unsqueeze(1);
  return at::zeros_like(later, at::kFloat)
      .masked_fill(later, -std::numeric_limits<float>::infinity())
      .view({1, 1, queries, queries});
}

// softmax(rule(q k^T) + bias) v for q [B, N, Q, D] and as many heads of keys and values.
at::Tensor mix(const at::Tensor& q, const GroupKeys& of, const PaddedGroup& group,
               const ScoreRule& rule) {
  if (rule.soft_cap == 0 && (q.is_cuda() || q.is_cpu()))
    return at::scaled_dot_product_attention(q, of.keys, of.values,
                                            group.whole ? std::optional<at::Tensor>() : group.bias,
                                            /*dropout_p=*/0,
                                            /*is_causal=*/group.whole, rule.scale);
  const at::Tensor k = of.keys.to(at::kFloat), v = of.values.to(at::kFloat);
  at::Tensor scores = at::matmul(q.to(at::kFloat), k.transpose(2, 3)) * rule.scale;
  if (rule.soft_cap > 0) scores = at::tanh(scores / rule.soft_cap) * rule.soft_cap;
  scores = scores + (group.whole ? causal_bias(group.queries, q.device()) : group.bias);
  return at::matmul(at::softmax(scores, 3), v).to(q.scalar_type());
}

// One query a sequence: the query heads of a key/value head stand as its queries, and keys and
// values are read once for all of them.
at::Tensor mix_one_query(const at::Tensor& q_BAD, const GroupKeys& of, const PaddedGroup& group,
                         const ScoreRule& rule) {
  const int64_t kv_heads = of.keys.size(1);
  const at::Tensor q = q_BAD.view({q_BAD.size(0), kv_heads, -1, q_BAD.size(2)});
  return mix(q, of, group, rule).reshape(q_BAD.sizes());
}

// Rows [B Q, A, D] of one group.
at::Tensor mix_group(const at::Tensor& q_RAD, const GroupKeys& of, const PaddedGroup& group,
                     const ScoreRule& rule) {
  if (group.queries == 1 && !group.whole) return mix_one_query(q_RAD, of, group, rule);
  const int64_t heads = q_RAD.size(1);
  const GroupKeys all{for_query_heads(of.keys, heads), for_query_heads(of.values, heads)};
  return mix(by_head(q_RAD, group, group.queries), all, group, rule)
      .transpose(1, 2)
      .reshape(q_RAD.sizes());
}

}  // namespace

at::Tensor attention_by_operators(const at::Tensor& q_TAD, const at::Tensor& k_TKD,
                                  const at::Tensor& v_TKD, const AttentionBatch& batch,
                                  const ScoreRule& rule, const KvLayer* layer) {
  const PaddedBatch& padded = padded_batch(batch, q_TAD.device(), q_TAD.scalar_type());
  std::vector<int64_t> rows;
  bool any_whole = false;
  for (const PaddedGroup& group : padded.groups) {
    rows.push_back(group.sequences * group.queries);
    any_whole = any_whole || group.whole;
  }
  const auto parts_of = [&](const at::Tensor& x) {
    return pad_rows(x, padded).split_with_sizes(rows);
  };
  const std::vector<at::Tensor> q = parts_of(q_TAD);
  std::vector<at::Tensor> k, v, outputs;
  if (any_whole) k = parts_of(k_TKD), v = parts_of(v_TKD);
  for (size_t i = 0; i < padded.groups.size(); ++i) {
    const PaddedGroup& group = padded.groups[i];
    const GroupKeys keys = group.whole ? GroupKeys{by_head(k[i], group, group.queries),
                                                   by_head(v[i], group, group.queries)}
                                       : keys_of(k_TKD, v_TKD, group, layer);
    outputs.push_back(mix_group(q[i], keys, group, rule));
  }
  return unpad_rows(outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0), padded);
}

}  // namespace braid::inline nn
