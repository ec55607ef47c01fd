// Attention as a composition of ATen operators, for devices without a kernel of ours: one sequence
// at a time, scores in f32, gradients by autograd.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <limits>

#include "nn/kernels/kernels.h"

namespace braid::inline nn {
namespace {

// Keys and values [keys, K, D] of sequence s: its rows of the batch, or from its pages.
KvLayer rows_of(const KvLayer& packed, const KvLayer* pages, const AttentionBatch& batch,
                int64_t s) {
  const int64_t begin = batch.query_begin[s], queries = batch.query_begin[s + 1] - begin;
  if (pages == nullptr) {
    const auto rows = [&](const at::Tensor& all) {
      const at::Tensor own = all.narrow(0, begin, queries);
      if (batch.host(s) < 0) return own;
      const int64_t of_host = batch.query_begin[batch.host(s)];
      return at::cat({all.narrow(0, of_host, batch.cached[s]), own}, 0);
    };
    return {rows(packed.keys), rows(packed.values)};
  }
  return read_kv(*pages, batch.page_tables[s], batch.cached[s] + queries);
}

// [queries, keys]: true where a query may not see a key.
at::Tensor hidden_keys(int64_t cached, int64_t queries, int64_t window, const at::Device& device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor query = at::arange(cached, cached + queries, options).unsqueeze(1);
  const at::Tensor key = at::arange(cached + queries, options).unsqueeze(0);
  const at::Tensor later = key > query;
  return window > 0 ? later.logical_or(key <= query - window) : later;
}

// [heads, rows, D] in f32, each key/value head repeated for the query heads of its group.
at::Tensor by_head(const at::Tensor& rows, int64_t group) {
  const at::Tensor heads = rows.to(at::kFloat).transpose(0, 1);
  return group == 1 ? heads : heads.repeat_interleave(group, 0);
}

}  // namespace

at::Tensor attention_by_operators(const at::Tensor& q_TAD, const at::Tensor& k_TKD,
                                  const at::Tensor& v_TKD, const AttentionBatch& batch,
                                  const ScoreRule& rule, const KvLayer* layer) {
  const int64_t group = q_TAD.size(1) / k_TKD.size(1);
  std::vector<at::Tensor> outputs;
  for (int64_t s = 0; s + 1 < static_cast<int64_t>(batch.query_begin.size()); ++s) {
    const int64_t begin = batch.query_begin[s], queries = batch.query_begin[s + 1] - begin;
    const at::Tensor q = by_head(q_TAD.narrow(0, begin, queries), 1);
    const KvLayer rows = rows_of({k_TKD, v_TKD}, layer, batch, s);
    const at::Tensor k = by_head(rows.keys, group), v = by_head(rows.values, group);
    const at::Tensor hidden = hidden_keys(batch.cached[s], queries, batch.window, q_TAD.device());
    at::Tensor scores = at::matmul(q, k.transpose(1, 2)) * rule.scale;
    if (rule.soft_cap > 0) scores = at::tanh(scores / rule.soft_cap) * rule.soft_cap;
    scores = scores.masked_fill(hidden, -std::numeric_limits<float>::infinity());
    outputs.push_back(at::matmul(at::softmax(scores, 2), v).transpose(0, 1));
  }
  return at::cat(outputs, 0).to(q_TAD.scalar_type());
}

}  // namespace braid::inline nn
