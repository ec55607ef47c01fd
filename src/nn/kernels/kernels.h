// The tensor functions that models are made of. Each has a forward and, where stated, a backward
// known to autograd. Batch invariance: every row of a result depends on that row's inputs alone, to
// the last bit, in any batch (blueprint §7). Functions are stateless and may be called from one
// thread at a time per process (they use libtorch's thread pool). Shape legend: T tokens of a
// packed batch, H hidden, I intermediate, A query heads, K key/value heads, D head size, V
// vocabulary, N selected rows, P cache pages, B tokens per page (kPageTokens).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "batching/cache_pages.h"
#include "models/spec.h"

namespace braid::inline nn {

// Rows that a GEMM of a library which is not our own is padded to at least: below, these choose
// kernels whose rows depend on the batch.
inline constexpr int64_t kMinRows = 8;

// A weight in the layout of the library that multiplies fastest by it (choice.h), valid
// until the weight changes. Undefined members: the library works on the weight itself, or not
// packed.
struct PackedLinear {
  at::Tensor forward;   // of w, for y = x w^T
  at::Tensor backward;  // of w^T, for dx = dy w
};

PackedLinear pack_linear(const at::Tensor& w_OI, bool for_backward);

// y_TO = x_TI w_OI^T + b_O (b may be undefined). Differentiable.
// `packed` is pack_linear() of w; without it a weight of a shape that wants packing is packed here.
// Results do not depend on whether it is given.
at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O,
                  const PackedLinear* packed = nullptr);

// x_TH / rms(x) * (w_H or 1 + w_H). Sums in f32. Differentiable. (Zhang & Sennrich, 2019)
at::Tensor rms_norm(const at::Tensor& x_TH, const at::Tensor& w_H, double eps, bool unit_offset);

// x + y and rms_norm(x + y) in one pass. Differentiable.
struct NormedSum {
  at::Tensor sum_TH, normed_TH;
};
NormedSum add_rms_norm(const at::Tensor& x_TH, const at::Tensor& y_TH, const at::Tensor& w_H,
                       double eps, bool unit_offset);

// Layer normalization over the last dimension. Differentiable. (Ba et al., 2016)
at::Tensor layer_norm(const at::Tensor& x_TH, const at::Tensor& w_H, const at::Tensor& b_H,
                      double eps);

// act(gate) * up for gate_up_T2I = [gate | up]. Differentiable.
at::Tensor gated_activation(const at::Tensor& gate_up_T2I, Activation activation);

// Element-wise activation. Differentiable.
at::Tensor activate(const at::Tensor& x, Activation activation);

// Table of cos and sin, f32 [positions, 2, D/2], by the rule of the spec (Su et al., 2021; llama3
// scaling and LongRoPE as in transformers' modeling_rope_utils).
at::Tensor rope_table(const RopeSpec& rope, int64_t head_dim, int64_t positions);

// Rotates pairs (i, i + D/2) of each head of x_TAD by the row of the table at each position (or by
// the rows that rotation.h finds).
// Differentiable.
at::Tensor rotate(const at::Tensor& x_TAD, const at::Tensor& table, const at::Tensor& positions_T);

// The heads of a joined projection [T, W] with W = (heads + 2 kv_heads) head_dim.
struct HeadLayout {
  int64_t heads, kv_heads, head_dim;
};

// Query, key and value heads [T, A, D], [T, K, D], [T, K, D] of qkv_TW; queries and keys are
// rotated as by rotate() unless the table is undefined. Differentiable.
std::vector<at::Tensor> split_heads(const at::Tensor& qkv_TW, const HeadLayout& layout,
                                    const at::Tensor& table, const at::Tensor& positions_T);

// One layer's cache pages: keys [P, K, D, B], values [P, K, B, D].
struct KvLayer {
  at::Tensor keys;
  at::Tensor values;
};

// Pages with undefined contents; zeros on an accelerator.
KvLayer allocate_kv(int64_t pages, int64_t kv_heads, int64_t depth,
                    const at::TensorOptions& options);

// Copies of the keys and values [tokens, K, D] of the first `tokens` positions of a sequence that
// has these pages.
KvLayer read_kv(const KvLayer& layer, const std::vector<int32_t>& pages, int64_t tokens);

struct PaddedBatch;  // padded_batch.h

// Which queries belong to which sequence and where its keys are. Without page tables, keys are the
// batch's own k and v: of whole sequences from position 0, or of the rest of sequences whose first
// tokens are those of an earlier one. With page tables, the batch's k and v were already stored by
// store_kv and keys 0 .. cached[s] + queries of s - 1 are read from the pages.
struct AttentionBatch {
  std::vector<int32_t> query_begin;               // [S + 1], offsets of the sequences in T
  std::vector<int32_t> cached;                    // [S] tokens before the first query
  std::vector<std::vector<int32_t>> page_tables;  // [S] page numbers in order; empty: no cache
  int64_t window = 0;  // > 0: a query sees only the last `window` keys (itself included)
  // [S] the earlier, whole sequence of the batch whose first cached[s] rows come before the queries
  // of s; -1: none, cached[s] is 0. Empty: no sequence has one, or all tokens before are in pages.
  std::vector<int32_t> hosts = {};
  // What attention_by_operators() reads of the batch, on its device: made by the first layer that
  // asks, for those after it.
  mutable std::shared_ptr<const PaddedBatch> padded = {};

  int32_t host(int64_t s) const { return hosts.empty() ? -1 : hosts[s]; }
  // Tokens of sequence s up to its last query.
  int64_t length(int64_t s) const { return cached[s] + query_begin[s + 1] - query_begin[s]; }
};

// Writes k_TKD and v_TKD of the batch's queries into their pages at positions cached[s] + i.
void store_kv(const at::Tensor& k_TKD, const at::Tensor& v_TKD, const AttentionBatch& batch,
              const KvLayer& layer);

// Pages that hold every page number of the batch's tables: one more than the largest, 0 without.
int64_t page_count(const AttentionBatch& batch);

// Contiguous f32 keys on the CPU in the form of KvLayer::keys, in pages of their own as the page
// tables of the batch number them. Whole pages of a host's first tokens are its own; what remains
// of these is copied to the page where the sequence goes on, here and in store_kv().
at::Tensor transposed_pages(const at::Tensor& k_TKD, const AttentionBatch& batch);

// What the product of a query and a key becomes before the softmax: its multiple by `scale`, or
// where soft_cap > 0 soft_cap tanh(scale q k / soft_cap) (Gemma 2, arXiv 2408.00118, §2).
struct ScoreRule {
  double scale;
  double soft_cap = 0;
};

// Causal softmax(rule(q k^T)) v with grouped key/value heads; returns [T, A, D]. Sums in f32 over
// blocks of kPageTokens keys in order (online softmax, Milakov & Gimelshein 2018; backward as in
// FlashAttention, Dao et al. 2022, §3.1). Differentiable without a cache; `layer` is null then.
at::Tensor attention(const at::Tensor& q_TAD, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
                     const AttentionBatch& batch, const ScoreRule& rule, const KvLayer* layer);

// The same by ATen operators, on any device; attention() takes it where there is no kernel of ours.
// Slots of the pages that nobody wrote are numbers too.
at::Tensor attention_by_operators(const at::Tensor& q_TAD, const at::Tensor& k_TKD,
                                  const at::Tensor& v_TKD, const AttentionBatch& batch,
                                  const ScoreRule& rule, const KvLayer* layer);

// x becomes cap tanh(x / cap); with a cap of 0 it stays. f32, not recorded by autograd.
void soft_cap_in_place(const at::Tensor& x, double cap);

struct HeadOptions {
  double temperature = 1;
  int64_t chunk_rows = 256;
  double soft_cap = 0;  // of the logits, before the temperature; 0: none
};

// Rows of a chunk on a device: on an accelerator chunks are fewer, since each adds a gradient of
// the whole matrix.
inline int64_t head_chunk_rows(at::Device device, int64_t on_processor = 256) {
  return device.is_cpu() ? on_processor : 4 * on_processor;
}

struct HeadOutput {
  at::Tensor logprobs_N;  // f32, log p(target) under softmax(logits / temperature)
  at::Tensor entropy_N;   // f32, entropy of that distribution
};

// log-prob and entropy of the language-model head without ever holding all logits: rows are taken
// in chunks of at most chunk_rows, in the backward too. Differentiable in h_NH and w_VH (through
// logprobs and entropy).
HeadOutput head_logprobs(const at::Tensor& h_NH, const at::Tensor& w_VH,
                         const at::Tensor& targets_N, const HeadOptions& options);

// Checks on this machine that linear() and attention() give equal rows in different batches; false
// = they do not.
bool batch_invariance_holds();

}  // namespace braid::inline nn
