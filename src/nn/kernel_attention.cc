// Attention on the CPU: tiles of query rows against blocks of kPageTokens keys, everything widened
// to f32. A row's arithmetic is the same whichever rows share its tile and wherever its keys lie,
// which is what makes sampling, scoring and training agree to the bit. Rows of a tile are (query,
// head of the group) pairs.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/status.h"
#include "nn/kernel_simd.h"
#include "nn/kernels.h"

namespace braid {
namespace {

constexpr int64_t kKeys = kPageTokens;
constexpr int64_t kTileRows = 32;  // query rows of one tile, a multiple of 4
constexpr float kMasked = -std::numeric_limits<float>::infinity();

// s[rows][kKeys] = a[rows][depth] * bt[depth][kKeys]; rows is a multiple of 4.
BRAID_SIMD void dot_tile(const float* a, const float* bt, float* s, int64_t rows, int64_t depth) {
  for (int64_t r = 0; r < rows; r += 4) {
    float sums[4][kKeys] = {};
    const float* row = a + r * depth;
    for (int64_t d = 0; d < depth; ++d)
      for (int i = 0; i < 4; ++i) {
        const float x = row[i * depth + d];
        for (int64_t j = 0; j < kKeys; ++j) sums[i][j] += x * bt[d * kKeys + j];
      }
    for (int i = 0; i < 4; ++i)
      for (int64_t j = 0; j < kKeys; ++j) s[(r + i) * kKeys + j] = sums[i][j];
  }
}

// Columns [begin, end) of accumulate_tile, kChunk at a time.
template <int kChunk>
__attribute__((always_inline)) inline void accumulate_columns(const float* w, const float* v,
                                                              float* o, int64_t rows, int64_t depth,
                                                              int64_t begin, int64_t end) {
  for (int64_t r = 0; r < rows; r += 4)
    for (int64_t d = begin; d < end; d += kChunk) {
      float sums[4][kChunk];
      for (int i = 0; i < 4; ++i)
        for (int c = 0; c < kChunk; ++c) sums[i][c] = o[(r + i) * depth + d + c];
      for (int64_t j = 0; j < kKeys; ++j)
        for (int i = 0; i < 4; ++i) {
          const float x = w[(r + i) * kKeys + j];
          for (int c = 0; c < kChunk; ++c) sums[i][c] += x * v[j * depth + d + c];
        }
      for (int i = 0; i < 4; ++i)
        for (int c = 0; c < kChunk; ++c) o[(r + i) * depth + d + c] = sums[i][c];
    }
}

// o[rows][depth] += w[rows][kKeys] * v[kKeys][depth]; rows is a multiple of 4, depth of 16.
BRAID_SIMD void accumulate_tile(const float* w, const float* v, float* o, int64_t rows,
                                int64_t depth) {
  const int64_t wide = depth / 32 * 32;
  accumulate_columns<32>(w, v, o, rows, depth, 0, wide);
  accumulate_columns<16>(w, v, o, rows, depth, wide, depth);
}

// One step of the online softmax for each row: scores become weights, running maximum, sum and
// output are rescaled.
BRAID_SIMD void softmax_step(float* s, float* maximum, float* sum, float* o, int64_t rows,
                             int64_t depth) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = s + r * kKeys;
    float top = maximum[r];
    for (int64_t j = 0; j < kKeys; ++j) top = row[j] > top ? row[j] : top;
    if (top == kMasked) {
      for (int64_t j = 0; j < kKeys; ++j) row[j] = 0;
      continue;
    }
    const float scale = fast_exp(maximum[r] - top);
    for (int64_t j = 0; j < kKeys; ++j) row[j] = fast_exp(row[j] - top);
    float total = 0;
    for (int64_t j = 0; j < kKeys; ++j) total += row[j];
    sum[r] = sum[r] * scale + total;
    maximum[r] = top;
    if (scale != 1.0F)
      for (int64_t d = 0; d < depth; ++d) o[r * depth + d] *= scale;
  }
}

// ds = p * (dp - delta) * scale with p = exp(s - lse); p replaces s.
BRAID_SIMD void score_gradient(float* s, const float* dp, const float* lse, const float* delta,
                               float* ds, int64_t rows, float scale) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < kKeys; ++j) {
      const int64_t at = r * kKeys + j;
      s[at] = fast_exp(s[at] - lse[r]);
      ds[at] = s[at] * (dp[at] - delta[r]) * scale;
    }
}

using Lanes16 __attribute__((vector_size(64), aligned(4))) = float;

// Transposes 16 x 16 numbers in registers by exchanging ever smaller blocks.
__attribute__((always_inline)) inline void transpose_block(Lanes16* rows) {
  for (int i = 0; i < 16; ++i)
    if ((i & 8) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 8];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
      rows[i + 8] = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28,
                                            29, 30, 31);
    }
  for (int i = 0; i < 16; ++i)
    if ((i & 4) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 4];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
      rows[i + 4] =
          __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
    }
  for (int i = 0; i < 16; ++i)
    if ((i & 2) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 2];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      rows[i + 2] =
          __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  for (int i = 0; i < 16; ++i)
    if ((i & 1) == 0) {
      const Lanes16 a = rows[i], b = rows[i + 1];
      rows[i] =
          __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
      rows[i + 1] =
          __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    }
}

// to[c][r] = from[r][c] for a [kKeys][columns] block; columns is a multiple of 16, `to` has kKeys
// numbers a row.
BRAID_SIMD void transpose_rows(const float* from, int64_t from_stride, float* to, int64_t columns) {
  for (int64_t r = 0; r < kKeys; r += 16)
    for (int64_t c = 0; c < columns; c += 16) {
      Lanes16 rows[16];
      for (int i = 0; i < 16; ++i)
        std::memcpy(&rows[i], from + (r + i) * from_stride + c, sizeof(Lanes16));
      transpose_block(rows);
      for (int i = 0; i < 16; ++i) std::memcpy(to + (c + i) * kKeys + r, &rows[i], sizeof(Lanes16));
    }
}

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// A [rows, heads, depth] tensor as flat memory with element strides.
template <typename T>
struct HeadView {
  T* data;
  int64_t row_stride, head_stride;
  explicit HeadView(const at::Tensor& t)
      : data(t.mutable_data_ptr<T>()), row_stride(t.stride(0)), head_stride(t.stride(1)) {}
  T* at(int64_t row, int64_t head) const { return data + row * row_stride + head * head_stride; }
};

template <typename T>
void load_row(const T* from, float* to, int64_t depth, int64_t padded) {
  int64_t d = 0;
  if constexpr (std::is_same_v<T, float>)
    for (; d + 16 <= depth; d += 16) std::memcpy(to + d, from + d, 16 * sizeof(float));
  for (; d < depth; ++d) to[d] = static_cast<float>(from[d]);
  for (; d < padded; ++d) to[d] = 0;
}

// What one call of attention() works on; sizes as in kernels.h.
struct Shape {
  int64_t heads, kv_heads, group, depth, padded;
  float scale;
  Shape(const at::Tensor& q, const at::Tensor& k, double scale_in)
      : heads(q.size(1)),
        kv_heads(k.size(1)),
        group(q.size(1) / k.size(1)),
        depth(q.size(2)),
        padded(round_up(q.size(2), 16)),
        scale(static_cast<float>(scale_in)) {}
};

// Keys or values of one sequence by position: in the packed batch, or in cache pages.
template <typename T>
class KeySource {
 public:
  KeySource(const at::Tensor& packed, const at::Tensor* pages, const AttentionBatch& batch)
      : packed_(packed),
        batch_(batch),
        page_data_(pages ? pages->const_data_ptr<T>() : nullptr),
        page_stride_(pages ? pages->stride(0) : 0),
        slot_stride_(pages ? pages->stride(1) : 0),
        page_head_stride_(pages ? pages->stride(2) : 0) {}
  const T* at(int64_t sequence, int64_t position, int64_t kv_head) const {
    if (page_data_ == nullptr) return packed_.at(batch_.query_begin[sequence] + position, kv_head);
    const int64_t page = batch_.page_tables[sequence][position / kPageTokens];
    return page_data_ + page * page_stride_ + position % kPageTokens * slot_stride_ +
           kv_head * page_head_stride_;
  }

 private:
  HeadView<T> packed_;
  const AttentionBatch& batch_;
  const T* page_data_;
  int64_t page_stride_, slot_stride_, page_head_stride_;
};

// One unit of forward work: some queries of one sequence under one key/value head.
struct WorkItem {
  int64_t sequence, kv_head, first, count;  // queries first .. first + count - 1 of the sequence
};

std::vector<WorkItem> forward_items(const AttentionBatch& batch, const Shape& shape) {
  const int64_t queries = std::max<int64_t>(1, kTileRows / shape.group);
  std::vector<WorkItem> items;
  for (size_t s = 0; s + 1 < batch.query_begin.size(); ++s) {
    const int64_t length = batch.query_begin[s + 1] - batch.query_begin[s];
    for (int64_t k = 0; k < shape.kv_heads; ++k)
      for (int64_t first = 0; first < length; first += queries)
        items.push_back({static_cast<int64_t>(s), k, first, std::min(queries, length - first)});
  }
  return items;
}

// Scratch memory of one thread.
struct Scratch {
  std::vector<float> rows, keys_t, values_t, values, scores, gradient_scores, out, out2, transposed;
  Scratch(int64_t tile_rows, int64_t padded)
      : rows(tile_rows * padded),
        keys_t(kKeys * padded),
        values_t(kKeys * padded),
        values(kKeys * padded),
        scores(tile_rows * kKeys),
        gradient_scores(tile_rows * kKeys),
        out(tile_rows * padded),
        out2(tile_rows * padded),
        transposed(tile_rows * kKeys) {}
};

// Scales, and sets scores of keys that a row may not see to minus infinity. positions[r] is the
// row's own position, at least `least`: where that sees the whole block, nothing is hidden.
BRAID_SIMD void scale_and_mask(float* s, const int64_t* positions, int64_t least, int64_t rows,
                               int64_t first_key, int64_t window, float scale) {
  if (window == 0 && first_key + kKeys - 1 <= least) {
    for (int64_t i = 0; i < rows * kKeys; ++i) s[i] *= scale;
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const auto last = static_cast<int32_t>(std::max<int64_t>(positions[r] - first_key, -1));
    const auto oldest =
        window > 0 ? static_cast<int32_t>(std::max<int64_t>(last - window + 1, 0)) : 0;
    float* row = s + r * kKeys;
    for (int32_t j = 0; j < kKeys; ++j)
      row[j] = j <= last && j >= oldest ? row[j] * scale : kMasked;
  }
}

// kKeys rows from position `first` on as [kKeys][padded]; rows from `end` on are zero.
template <typename T>
void load_keys(const KeySource<T>& source, const WorkItem& item, int64_t first, int64_t end,
               const Shape& shape, float* plain) {
  const int64_t present = std::min(kKeys, end - first);
  for (int64_t j = 0; j < present; ++j)
    load_row(source.at(item.sequence, first + j, item.kv_head), plain + j * shape.padded,
             shape.depth, shape.padded);
  std::fill(plain + present * shape.padded, plain + kKeys * shape.padded, 0.0F);
}

template <typename T>
void forward_item(const WorkItem& item, const HeadView<T>& q, const KeySource<T>& keys,
                  const KeySource<T>& values, const HeadView<T>& out, float* lse,
                  const AttentionBatch& batch, const Shape& shape, Scratch& scratch) {
  const int64_t used = item.count * shape.group, rows = round_up(used, 4);
  const int64_t base = batch.query_begin[item.sequence] + item.first;
  const int64_t start = batch.cached[item.sequence] + item.first;
  std::vector<int64_t> positions(rows, start);
  std::fill(scratch.rows.begin(), scratch.rows.end(), 0.0F);
  std::fill(scratch.out.begin(), scratch.out.end(), 0.0F);
  for (int64_t r = 0; r < used; ++r) {
    positions[r] = start + r / shape.group;
    load_row(q.at(base + r / shape.group, item.kv_head * shape.group + r % shape.group),
             &scratch.rows[r * shape.padded], shape.depth, shape.padded);
  }
  std::vector<float> maximum(rows, kMasked), sum(rows, 0.0F);
  const int64_t end = start + item.count;
  const int64_t oldest = batch.window > 0 ? std::max<int64_t>(0, start - batch.window + 1) : 0;
  for (int64_t first = oldest / kKeys * kKeys; first < end; first += kKeys) {
    load_keys<T>(keys, item, first, end, shape, scratch.values.data());
    transpose_rows(scratch.values.data(), shape.padded, scratch.keys_t.data(), shape.padded);
    load_keys<T>(values, item, first, end, shape, scratch.values.data());
    dot_tile(scratch.rows.data(), scratch.keys_t.data(), scratch.scores.data(), rows, shape.padded);
    scale_and_mask(scratch.scores.data(), positions.data(), start, rows, first, batch.window,
                   shape.scale);
    softmax_step(scratch.scores.data(), maximum.data(), sum.data(), scratch.out.data(), rows,
                 shape.padded);
    accumulate_tile(scratch.scores.data(), scratch.values.data(), scratch.out.data(), rows,
                    shape.padded);
  }
  for (int64_t r = 0; r < used; ++r) {
    const int64_t token = base + r / shape.group,
                  head = item.kv_head * shape.group + r % shape.group;
    T* to = out.at(token, head);
    const float inverse = 1.0F / sum[r];
    for (int64_t d = 0; d < shape.depth; ++d)
      to[d] = static_cast<T>(scratch.out[r * shape.padded + d] * inverse);
    if (lse != nullptr) lse[token * shape.heads + head] = maximum[r] + std::log(sum[r]);
  }
}

template <typename T>
void forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const AttentionBatch& batch, const Shape& shape, const KvLayer* layer,
                 const at::Tensor& out, float* lse) {
  const HeadView<T> queries(q), outputs(out);
  const KeySource<T> keys(k, layer ? &layer->keys : nullptr, batch);
  const KeySource<T> values(v, layer ? &layer->values : nullptr, batch);
  const std::vector<WorkItem> items = forward_items(batch, shape);
  at::parallel_for(0, static_cast<int64_t>(items.size()), 1, [&](int64_t begin, int64_t end) {
    Scratch scratch(std::max(kTileRows, round_up(shape.group, 4)), shape.padded);
    for (int64_t i = begin; i < end; ++i)
      forward_item(items[i], queries, keys, values, outputs, lse, batch, shape, scratch);
  });
}

// Gradients of one (sequence, key/value head): dq of its query heads and dk, dv, all written by
// this thread alone.
template <typename T>
struct BackwardViews {
  HeadView<T> q, k, v, out, grad_out, dq, dk, dv;
  const float* lse;
};

template <typename T>
void load_query_tile(const BackwardViews<T>& views, const WorkItem& tile, int64_t base,
                     const Shape& shape, std::vector<float>& q, std::vector<float>& grad,
                     std::vector<float>& lse, std::vector<float>& delta) {
  std::fill(q.begin(), q.end(), 0.0F);
  std::fill(grad.begin(), grad.end(), 0.0F);
  std::fill(lse.begin(), lse.end(), 0.0F);
  std::fill(delta.begin(), delta.end(), 0.0F);
  for (int64_t r = 0; r < tile.count * shape.group; ++r) {
    const int64_t token = base + tile.first + r / shape.group;
    const int64_t head = tile.kv_head * shape.group + r % shape.group;
    load_row(views.q.at(token, head), &q[r * shape.padded], shape.depth, shape.padded);
    load_row(views.grad_out.at(token, head), &grad[r * shape.padded], shape.depth, shape.padded);
    lse[r] = views.lse[token * shape.heads + head];
    const T* out = views.out.at(token, head);
    for (int64_t d = 0; d < shape.depth; ++d)
      delta[r] += static_cast<float>(out[d]) * grad[r * shape.padded + d];
  }
}

static_assert(kTileRows == kKeys, "tiles of scores are square");
void transpose_tile(const float* from, float* to) { transpose_rows(from, kKeys, to, kKeys); }

template <typename T>
void backward_sequence(int64_t sequence, int64_t kv_head, const BackwardViews<T>& views,
                       const AttentionBatch& batch, const KeySource<T>& keys,
                       const KeySource<T>& values, const Shape& shape) {
  static_assert(kTileRows == kKeys, "accumulate_tile sums over kKeys query rows in the backward");
  const int64_t base = batch.query_begin[sequence], length = batch.query_begin[sequence + 1] - base;
  const int64_t padded = shape.padded, tile_queries = kTileRows / shape.group;
  const int64_t blocks = (length + kKeys - 1) / kKeys;
  std::vector<float> dk(blocks * kKeys * padded), dv(blocks * kKeys * padded),
      plain_keys(kKeys * padded);
  std::vector<float> grad(kTileRows * padded), lse(kTileRows), delta(kTileRows);
  Scratch scratch(kTileRows, padded);
  for (int64_t first = 0; first < length; first += tile_queries) {
    const WorkItem tile{sequence, kv_head, first, std::min(tile_queries, length - first)};
    load_query_tile(views, tile, base, shape, scratch.rows, grad, lse, delta);
    std::fill(scratch.out.begin(), scratch.out.end(), 0.0F);
    std::vector<int64_t> positions(kTileRows, -1);  // unused rows see no key
    for (int64_t r = 0; r < tile.count * shape.group; ++r) positions[r] = first + r / shape.group;
    const int64_t least = tile.count * shape.group == kTileRows ? first : -1;
    const int64_t oldest = batch.window > 0 ? std::max<int64_t>(0, first - batch.window + 1) : 0;
    for (int64_t block = oldest / kKeys; block * kKeys < first + tile.count; ++block) {
      load_keys<T>(keys, tile, block * kKeys, length, shape, plain_keys.data());
      transpose_rows(plain_keys.data(), padded, scratch.keys_t.data(), padded);
      load_keys<T>(values, tile, block * kKeys, length, shape, scratch.values.data());
      transpose_rows(scratch.values.data(), padded, scratch.values_t.data(), padded);
      dot_tile(scratch.rows.data(), scratch.keys_t.data(), scratch.scores.data(), kTileRows,
               padded);
      scale_and_mask(scratch.scores.data(), positions.data(), least, kTileRows, block * kKeys,
                     batch.window, shape.scale);
      std::vector<float>& dp = scratch.transposed;
      dot_tile(grad.data(), scratch.values_t.data(), dp.data(), kTileRows, padded);
      score_gradient(scratch.scores.data(), dp.data(), lse.data(), delta.data(),
                     scratch.gradient_scores.data(), kTileRows, shape.scale);
      accumulate_tile(scratch.gradient_scores.data(), plain_keys.data(), scratch.out.data(),
                      kTileRows, padded);
      transpose_tile(scratch.scores.data(), dp.data());
      accumulate_tile(dp.data(), grad.data(), &dv[block * kKeys * padded], kKeys, padded);
      transpose_tile(scratch.gradient_scores.data(), dp.data());
      accumulate_tile(dp.data(), scratch.rows.data(), &dk[block * kKeys * padded], kKeys, padded);
    }
    for (int64_t r = 0; r < tile.count * shape.group; ++r) {
      T* to = views.dq.at(base + first + r / shape.group, kv_head * shape.group + r % shape.group);
      for (int64_t d = 0; d < shape.depth; ++d) to[d] = static_cast<T>(scratch.out[r * padded + d]);
    }
  }
  for (int64_t i = 0; i < length; ++i)
    for (int64_t d = 0; d < shape.depth; ++d) {
      views.dk.at(base + i, kv_head)[d] = static_cast<T>(dk[i * padded + d]);
      views.dv.at(base + i, kv_head)[d] = static_cast<T>(dv[i * padded + d]);
    }
}

template <typename T>
void backward_cpu(const BackwardViews<T>& views, const at::Tensor& k, const at::Tensor& v,
                  const AttentionBatch& batch, const Shape& shape) {
  const KeySource<T> keys(k, nullptr, batch), values(v, nullptr, batch);
  const int64_t sequences = static_cast<int64_t>(batch.query_begin.size()) - 1;
  at::parallel_for(0, sequences * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      backward_sequence(i / shape.kv_heads, i % shape.kv_heads, views, batch, keys, values, shape);
  });
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q_in,
                            const at::Tensor& k_in, const at::Tensor& v_in,
                            const AttentionBatch& batch, double scale) {
    const at::Tensor q = q_in.contiguous(), k = k_in.contiguous(), v = v_in.contiguous();
    const Shape shape(q, k, scale);
    at::Tensor out = at::empty_like(q);
    at::Tensor lse = at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "attention", [&] {
      forward_cpu<scalar_t>(q, k, v, batch, shape, nullptr, out, lse.mutable_data_ptr<float>());
    });
    context->save_for_backward({q, k, v, out, lse});
    context->saved_data["scale"] = scale;
    context->saved_data["window"] = batch.window;
    context->saved_data["begin"] =
        std::vector<int64_t>(batch.query_begin.begin(), batch.query_begin.end());
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const at::Tensor grad = grads[0].contiguous();
    AttentionBatch batch;
    for (int64_t begin : context->saved_data["begin"].toIntVector())
      batch.query_begin.push_back(begin);
    batch.cached.assign(batch.query_begin.size() - 1, 0);
    batch.window = context->saved_data["window"].toInt();
    const Shape shape(q, k, context->saved_data["scale"].toDouble());
    at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "attention", [&] {
      const BackwardViews<scalar_t> views{
          HeadView<scalar_t>(q),        HeadView<scalar_t>(k),    HeadView<scalar_t>(v),
          HeadView<scalar_t>(saved[3]), HeadView<scalar_t>(grad), HeadView<scalar_t>(dq),
          HeadView<scalar_t>(dk),       HeadView<scalar_t>(dv),   saved[4].const_data_ptr<float>()};
      backward_cpu<scalar_t>(views, k, v, batch, shape);
    });
    return {dq, dk, dv, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

namespace {

// Copies rows of [T, K, D] into page slots; memory of a token is contiguous on both sides.
void copy_to_pages(const at::Tensor& from, const at::Tensor& pages, const AttentionBatch& batch) {
  const at::Tensor packed = from.contiguous();
  const int64_t token_bytes = packed.size(1) * packed.size(2) * packed.element_size();
  const char* source = static_cast<const char*>(packed.const_data_ptr());
  char* target = static_cast<char*>(pages.mutable_data_ptr());
  for (size_t s = 0; s < batch.page_tables.size(); ++s)
    for (int32_t i = 0; i < batch.query_begin[s + 1] - batch.query_begin[s]; ++i) {
      const int64_t position = batch.cached[s] + i;
      const int64_t slot =
          batch.page_tables[s][position / kPageTokens] * kPageTokens + position % kPageTokens;
      std::memcpy(target + slot * token_bytes, source + (batch.query_begin[s] + i) * token_bytes,
                  token_bytes);
    }
}

// The same on any device, page by page.
void copy_slices_to_pages(const at::Tensor& from, const at::Tensor& pages,
                          const AttentionBatch& batch) {
  for (size_t s = 0; s < batch.page_tables.size(); ++s) {
    int64_t token = batch.query_begin[s], position = batch.cached[s];
    while (token < batch.query_begin[s + 1]) {
      const int64_t slot = position % kPageTokens;
      const int64_t count = std::min<int64_t>(kPageTokens - slot, batch.query_begin[s + 1] - token);
      pages.select(0, batch.page_tables[s][position / kPageTokens])
          .narrow(0, slot, count)
          .copy_(from.narrow(0, token, count));
      token += count;
      position += count;
    }
  }
}

}  // namespace

void store_kv(const at::Tensor& k_TKD, const at::Tensor& v_TKD, const AttentionBatch& batch,
              const KvLayer& layer) {
  const bool direct =
      layer.keys.device().is_cpu() && layer.keys.is_contiguous() && layer.values.is_contiguous();
  const auto copy = direct ? copy_to_pages : copy_slices_to_pages;
  copy(k_TKD, layer.keys, batch);
  copy(v_TKD, layer.values, batch);
}

at::Tensor attention(const at::Tensor& q_TAD, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
                     const AttentionBatch& batch, double scale, const KvLayer* layer) {
  BRAID_CHECK(q_TAD.size(1) % k_TKD.size(1) == 0,
              "query heads are not a multiple of key/value heads");
  if (!q_TAD.device().is_cpu())
    return attention_by_operators(q_TAD, k_TKD, v_TKD, batch, scale, layer);
  BRAID_CHECK(q_TAD.size(1) / k_TKD.size(1) <= kTileRows,
              "more query heads per key/value head than a tile has rows");
  if (layer == nullptr) return AttentionFunction::apply(q_TAD, k_TKD, v_TKD, batch, scale);
  const at::Tensor q = q_TAD.contiguous();
  const Shape shape(q, k_TKD, scale);
  at::Tensor out = at::empty_like(q);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "attention", [&] {
    forward_cpu<scalar_t>(q, k_TKD, v_TKD, batch, shape, layer, out, nullptr);
  });
  return out;
}

}  // namespace braid
