// Attention on the CPU: tiles of query rows against blocks of kPageTokens keys, everything widened
// to f32. A row's arithmetic is the same whichever rows share its tile and wherever its keys lie,
// which is what makes sampling, scoring and training agree to the bit: a packed batch is laid out
// in pages of its own first. Rows of a tile are (query, head of the group) pairs.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/status.h"
#include "nn/kernels/attention_items.h"
#include "nn/kernels/attention_tiles.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/rows.h"

namespace braid::inline nn {
namespace {

using attention_items::BlockWalk;
using attention_items::GroupRows;
using attention_items::HeadView;
using attention_items::PageView;
using attention_items::Scratch;
using attention_items::Shape;
using attention_items::wide;
using attention_items::WorkItem;
using tiles::kKeys;
using tiles::kTileRows;

constexpr int64_t kRun = 4;  // items, mostly with the same keys, that a thread takes at once

// f32 [T, A, D]; lse [T, A] unless null.
at::Tensor forward_cpu(const at::Tensor& q_wide, const KvLayer& layer, const AttentionBatch& batch,
                       const Shape& shape, float* lse) {
  at::Tensor out = at::empty_like(q_wide);
  const HeadView queries(q_wide), outputs(out);
  const std::vector<WorkItem> items = attention_items::forward_items(batch, shape);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, layer.keys.scalar_type(), "attention", [&] {
    const PageView<scalar_t> pages(layer, shape);
    const auto count = static_cast<int64_t>(items.size());
    const auto attend_run = [&](int64_t begin, int64_t end, Scratch& scratch) {
      for (int64_t i = begin; i < end; ++i) {
        const WorkItem& item = items[i];
        const WorkItem* const next = i + 1 < end ? &items[i + 1] : nullptr;
        const int64_t row = batch.query_begin[item.sequence] + item.first;
        load_rows(queries, {row, item.kv_head, item.count * shape.group}, shape,
                  scratch.rows.data());
        attend_and_store(BlockWalk<scalar_t>{pages, batch, item, next}, outputs, lse, shape,
                         scratch);
      }
    };
    const int64_t runs = (count + kRun - 1) / kRun;
    share_tasks(runs, [&](const auto& take) {
      Scratch scratch(shape);
      for (int64_t run = take(); run < runs; run = take())
        attend_run(kRun * run, std::min(count, kRun * (run + 1)), scratch);
    });
  });
  return out;
}

// The batch with pages of its own, numbered in order. Where a sequence has a host, the pages that
// its first tokens fill are the host's.
AttentionBatch paged_batch(const AttentionBatch& packed) {
  AttentionBatch batch = packed;
  int32_t page = 0;
  for (int64_t s = 0; s + 1 < static_cast<int64_t>(packed.query_begin.size()); ++s) {
    std::vector<int32_t> table((packed.length(s) + kKeys - 1) / kKeys);
    const int64_t shared = packed.cached[s] / kKeys;
    for (int64_t i = 0; i < static_cast<int64_t>(table.size()); ++i)
      table[i] = i < shared ? batch.page_tables[packed.host(s)][i] : page++;
    batch.page_tables.push_back(std::move(table));
  }
  return batch;
}

KvLayer own_pages(const at::Tensor& k, const at::Tensor& v, const AttentionBatch& paged) {
  KvLayer layer = allocate_kv(page_count(paged), k.size(1), k.size(2), k.options());
  store_kv(k, v, paged, layer);
  return layer;
}

// What the backward of one call reads and writes. Gradients of a (sequence, key/value head) are
// written by one thread alone: those of its own keys and values, and what it gives to its host's,
// in rows of their own from lent_begin[s] on.
struct BackwardViews {
  HeadView q, k, out, grad_out, dq, dk, dv, lent_dk, lent_dv;
  const float *keys_t, *values_t;  // by page, as KvLayer::keys
  const float* lse;
  std::vector<int64_t> lent_begin;  // [S + 1]
};

struct BackwardScratch {
  std::vector<float> rows, grad, lse, delta, scores, grad_scores, other, out, keys, dk, dv;
  std::vector<int64_t> positions;
  BackwardScratch(const Shape& shape, int64_t blocks)
      : rows(kTileRows * shape.padded),
        grad(kTileRows * shape.padded),
        lse(kTileRows),
        delta(kTileRows),
        scores(kTileRows * kKeys),
        grad_scores(kTileRows * kKeys),
        other(kTileRows * kKeys),
        out(kTileRows * shape.padded),
        keys(kKeys * shape.padded),
        dk(blocks * kKeys * shape.padded),
        dv(blocks * kKeys * shape.padded),
        positions(kTileRows) {}
};

// A tile is always kTileRows high in the backward; unused rows are zero and see no key.
void load_query_tile(const BackwardViews& views, const WorkItem& tile, const AttentionBatch& batch,
                     const Shape& shape, BackwardScratch& scratch) {
  const int64_t rows = tile.count * shape.group, start = batch.cached[tile.sequence] + tile.first;
  const GroupRows at{batch.query_begin[tile.sequence] + tile.first, tile.kv_head, rows};
  load_rows(views.q, at, shape, scratch.rows.data());
  load_rows(views.grad_out, at, shape, scratch.grad.data());
  std::fill(scratch.rows.begin() + rows * shape.padded, scratch.rows.end(), 0.0F);
  std::fill(scratch.grad.begin() + rows * shape.padded, scratch.grad.end(), 0.0F);
  std::fill(scratch.lse.begin(), scratch.lse.end(), 0.0F);
  std::fill(scratch.delta.begin(), scratch.delta.end(), 0.0F);
  std::fill(scratch.positions.begin(), scratch.positions.end(), -1);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = at.first + r / shape.group;
    const int64_t head = tile.kv_head * shape.group + r % shape.group;
    scratch.positions[r] = start + r / shape.group;
    scratch.lse[r] = views.lse[token * shape.heads + head];
    scratch.delta[r] = tiles::inner_product(views.out.at(token, head),
                                            &scratch.grad[r * shape.padded], shape.depth);
  }
}

static_assert(kTileRows == kKeys, "tiles of scores are square, so that they can be transposed");

// One block of a sequence's keys as rows. Rows of the host and the sequence's own that share a
// block are copied together.
tiles::Values key_rows(const BackwardViews& views, const WorkItem& tile, int64_t block,
                       const AttentionBatch& batch, BackwardScratch& scratch) {
  const HeadView& k = views.k;
  const int64_t first = block * kKeys, cached = batch.cached[tile.sequence];
  const int64_t keys = std::min(kKeys, batch.length(tile.sequence) - first);
  const int64_t stride = k.heads * k.depth, own = batch.query_begin[tile.sequence] - cached;
  if (first >= cached) return {k.at(own + first, tile.kv_head), stride, keys};
  const int64_t of_host = batch.query_begin[batch.host(tile.sequence)];
  if (first + keys <= cached) return {k.at(of_host + first, tile.kv_head), stride, keys};
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t row = (first + j < cached ? of_host : own) + first + j;
    std::copy_n(k.at(row, tile.kv_head), k.depth, &scratch.keys[j * k.depth]);
  }
  return {scratch.keys.data(), k.depth, keys};
}

// Adds what the loaded tile and one block of keys give to dq (scratch.out), dk and dv.
void backward_block(const BackwardViews& views, const WorkItem& tile, int64_t block,
                    const AttentionBatch& batch, const Shape& shape, BackwardScratch& s) {
  const int64_t page = batch.page_tables[tile.sequence][block], padded = shape.padded;
  const int64_t at = (page * shape.kv_heads + tile.kv_head) * shape.depth * kKeys;
  const bool full = tile.count * shape.group == kTileRows;
  const int64_t least = full ? batch.cached[tile.sequence] + tile.first : -1;
  tiles::dot(s.rows.data(), padded, views.keys_t + at, s.scores.data(), kTileRows, shape.depth);
  tiles::scale_and_mask(s.scores.data(), {s.positions.data(), least, block * kKeys, batch.window},
                        kTileRows, shape.scores);
  tiles::dot(s.grad.data(), padded, views.values_t + at, s.other.data(), kTileRows, shape.depth);
  tiles::score_gradient(s.scores.data(), s.other.data(), s.lse.data(), s.delta.data(),
                        s.grad_scores.data(), kTileRows, shape.scores);
  tiles::accumulate(s.grad_scores.data(), key_rows(views, tile, block, batch, s), s.out.data(),
                    kTileRows, padded);
  tiles::transpose(s.scores.data(), kKeys, s.other.data(), kKeys);
  tiles::accumulate(s.other.data(), {s.grad.data(), padded, kTileRows},
                    &s.dv[block * kKeys * padded], kKeys, padded);
  tiles::transpose(s.grad_scores.data(), kKeys, s.other.data(), kKeys);
  tiles::accumulate(s.other.data(), {s.rows.data(), padded, kTileRows},
                    &s.dk[block * kKeys * padded], kKeys, padded);
}

// Gradients of the keys and values of a sequence, position by position: to the host's rows, then to
// its own.
void store_key_gradients(int64_t sequence, int64_t kv_head, const BackwardViews& views,
                         const AttentionBatch& batch, const Shape& shape,
                         const BackwardScratch& scratch) {
  const int64_t cached = batch.cached[sequence], padded = shape.padded;
  const int64_t lent = views.lent_begin[sequence], own = batch.query_begin[sequence] - cached;
  for (int64_t i = 0; i < batch.length(sequence); ++i) {
    const bool of_host = i < cached;
    const int64_t row = (of_host ? lent : own) + i;
    const HeadView &dk = of_host ? views.lent_dk : views.dk,
                   &dv = of_host ? views.lent_dv : views.dv;
    std::copy_n(&scratch.dk[i * padded], padded, dk.at(row, kv_head));
    std::copy_n(&scratch.dv[i * padded], padded, dv.at(row, kv_head));
  }
}

void backward_sequence(int64_t sequence, int64_t kv_head, const BackwardViews& views,
                       const AttentionBatch& batch, const Shape& shape) {
  const int64_t base = batch.query_begin[sequence],
                queries = batch.query_begin[sequence + 1] - base;
  const int64_t padded = shape.padded, tile_queries = kTileRows / shape.group;
  BackwardScratch scratch(shape, (batch.length(sequence) + kKeys - 1) / kKeys);
  for (int64_t first = 0; first < queries; first += tile_queries) {
    const WorkItem tile{sequence, kv_head, first, std::min(tile_queries, queries - first)};
    load_query_tile(views, tile, batch, shape, scratch);
    std::fill(scratch.out.begin(), scratch.out.end(), 0.0F);
    const int64_t start = batch.cached[sequence] + first;
    const int64_t oldest = batch.window > 0 ? std::max<int64_t>(0, start - batch.window + 1) : 0;
    for (int64_t block = oldest / kKeys; block * kKeys < start + tile.count; ++block)
      backward_block(views, tile, block, batch, shape, scratch);
    for (int64_t r = 0; r < tile.count * shape.group; ++r)
      std::copy_n(
          &scratch.out[r * padded], padded,
          views.dq.at(base + first + r / shape.group, kv_head * shape.group + r % shape.group));
  }
  store_key_gradients(sequence, kv_head, views, batch, shape, scratch);
}

void backward_cpu(const BackwardViews& views, const AttentionBatch& batch, const Shape& shape) {
  const int64_t sequences = static_cast<int64_t>(batch.query_begin.size()) - 1;
  const int64_t tasks = sequences * shape.kv_heads;
  share_tasks(tasks, [&](const auto& take) {
    for (int64_t i = take(); i < tasks; i = take())
      backward_sequence(i / shape.kv_heads, i % shape.kv_heads, views, batch, shape);
  });
}

at::Tensor packed_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const AttentionBatch& batch, const ScoreRule& rule, float* lse) {
  const AttentionBatch paged = paged_batch(batch);
  const KvLayer layer = own_pages(wide(k), wide(v), paged);
  return forward_cpu(wide(q), layer, paged, Shape(q, k, rule), lse).to(q.scalar_type());
}

// The rows that sequences lend from hosts: first of each sequence, and their number at the end.
std::vector<int64_t> lent_rows(const AttentionBatch& batch) {
  std::vector<int64_t> begin = {0};
  for (const int32_t cached : batch.cached) begin.push_back(begin.back() + cached);
  return begin;
}

// Adds what sequences gave to the keys or values of their hosts, in the order of the sequences.
void add_lent(const at::Tensor& lent, const std::vector<int64_t>& lent_begin,
              const AttentionBatch& batch, const at::Tensor& to) {
  for (size_t s = 0; s < batch.hosts.size(); ++s)
    if (batch.hosts[s] >= 0)
      to.narrow(0, batch.query_begin[batch.hosts[s]], batch.cached[s])
          .add_(lent.narrow(0, lent_begin[s], batch.cached[s]));
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A batch without pages in the form that an autograd context can hold.
void save_batch(const AttentionBatch& batch, AutogradContext* context) {
  const auto save = [&](const char* name, const std::vector<int32_t>& numbers) {
    context->saved_data[name] = std::vector<int64_t>(numbers.begin(), numbers.end());
  };
  save("begin", batch.query_begin);
  save("cached", batch.cached);
  save("hosts", batch.hosts);
  context->saved_data["window"] = batch.window;
}

AttentionBatch saved_batch(AutogradContext* context) {
  const auto saved = [&](const char* name) {
    const std::vector<int64_t> numbers = context->saved_data[name].toIntVector();
    return std::vector<int32_t>(numbers.begin(), numbers.end());
  };
  return {
      saved("begin"), saved("cached"), {}, context->saved_data["window"].toInt(), saved("hosts")};
}

// Gradients of q, k and v in f32. `saved`: q, k, v, out, lse.
variable_list attention_gradients(const variable_list& saved, const at::Tensor& grad_out,
                                  const AttentionBatch& packed, const ScoreRule& rule) {
  const at::Tensor q = wide(saved[0]), k = wide(saved[1]), out = wide(saved[3]),
                   grad = wide(grad_out);
  const AttentionBatch batch = paged_batch(packed);
  const at::Tensor keys_t = transposed_pages(k, batch),
                   values_t = transposed_pages(wide(saved[2]), batch);
  at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(k);
  const std::vector<int64_t> lent_begin = lent_rows(batch);
  const at::Tensor lent_dk = at::empty({lent_begin.back(), k.size(1), k.size(2)}, k.options()),
                   lent_dv = at::empty_like(lent_dk);
  const BackwardViews views{HeadView(q),
                            HeadView(k),
                            HeadView(out),
                            HeadView(grad),
                            HeadView(dq),
                            HeadView(dk),
                            HeadView(dv),
                            HeadView(lent_dk),
                            HeadView(lent_dv),
                            keys_t.const_data_ptr<float>(),
                            values_t.const_data_ptr<float>(),
                            saved[4].const_data_ptr<float>(),
                            lent_begin};
  backward_cpu(views, batch, Shape(q, k, rule));
  add_lent(lent_dk, lent_begin, batch, dk);
  add_lent(lent_dv, lent_begin, batch, dv);
  return {dq, dk, dv};
}

// Without a cache; head sizes are multiples of 16.
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionBatch& batch,
                            const ScoreRule& rule) {
    const at::Tensor lse = at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
    const at::Tensor out = packed_forward(q, k, v, batch, rule, lse.mutable_data_ptr<float>());
    context->save_for_backward({q, k, v, out, lse});
    context->saved_data["scale"] = rule.scale;
    context->saved_data["soft_cap"] = rule.soft_cap;
    save_batch(batch, context);
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const ScoreRule rule{context->saved_data["scale"].toDouble(),
                         context->saved_data["soft_cap"].toDouble()};
    variable_list out = attention_gradients(saved, grads[0], saved_batch(context), rule);
    for (at::Tensor& gradient : out) gradient = gradient.to(saved[0].scalar_type());
    out.resize(5);
    return out;
  }
};

at::Tensor pad_depth(const at::Tensor& heads, int64_t depth) {
  return heads.size(2) == depth ? heads : at::constant_pad_nd(heads, {0, depth - heads.size(2)}, 0);
}

}  // namespace

at::Tensor attention(const at::Tensor& q_TAD, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
                     const AttentionBatch& batch, const ScoreRule& rule, const KvLayer* layer) {
  BRAID_CHECK(q_TAD.size(1) % k_TKD.size(1) == 0,
              "query heads are not a multiple of key/value heads");
  if (!q_TAD.device().is_cpu())
    return attention_by_operators(q_TAD, k_TKD, v_TKD, batch, rule, layer);
  const Shape shape(q_TAD, k_TKD, rule);
  BRAID_CHECK(shape.group <= kTileRows, "more query heads per key/value head than a tile has rows");
  if (layer != nullptr)
    return forward_cpu(wide(q_TAD), *layer, batch, shape, nullptr).to(q_TAD.scalar_type());
  const at::Tensor q = pad_depth(q_TAD, shape.padded), k = pad_depth(k_TKD, shape.padded),
                   v = pad_depth(v_TKD, shape.padded);
  const at::Tensor out = at::GradMode::is_enabled() ? AttentionFunction::apply(q, k, v, batch, rule)
                                                    : packed_forward(q, k, v, batch, rule, nullptr);
  return shape.depth == shape.padded ? out : out.narrow(2, 0, shape.depth);
}

}  // namespace braid::inline nn
