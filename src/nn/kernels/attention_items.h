// The forward of attention in units of work: some queries of one sequence under one key/value head,
// against the blocks of keys that they see. Shared by attention() and the decode step, so that both
// give the same bits. A unit needs memory of its thread (Scratch) and writes rows of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/ceil_div.h"
#include "nn/kernels/attention_tiles.h"
#include "nn/kernels/kernels.h"

namespace braid::inline nn::attention_items {

using tiles::kKeys;
using tiles::kTileRows;

// Sizes of one call of attention(), as in kernels.h; `padded` is the depth that tiles work on.
struct Shape {
  int64_t heads, kv_heads, group, depth, padded;
  tiles::Scores scores;
  Shape(const HeadLayout& layout, const ScoreRule& rule)
      : heads(layout.heads),
        kv_heads(layout.kv_heads),
        group(layout.heads / layout.kv_heads),
        depth(layout.head_dim),
        padded(round_up(layout.head_dim, 16)),
        scores{static_cast<float>(rule.scale), static_cast<float>(rule.soft_cap)} {}
  Shape(const at::Tensor& q, const at::Tensor& k, const ScoreRule& rule)
      : Shape(HeadLayout{q.size(1), k.size(1), q.size(2)}, rule) {}
};

// A contiguous f32 [rows, heads, depth] tensor.
struct HeadView {
  float* data;
  int64_t heads, depth;
  HeadView(float* rows, const Shape& shape) : data(rows), heads(shape.heads), depth(shape.depth) {}
  explicit HeadView(const at::Tensor& t)
      : data(t.mutable_data_ptr<float>()), heads(t.size(1)), depth(t.size(2)) {}
  float* at(int64_t row, int64_t head) const { return data + (row * heads + head) * depth; }
};

inline at::Tensor wide(const at::Tensor& t) { return t.to(at::kFloat).contiguous(); }

// `rows` rows of heads of one group from query `first` of the batch on, as [rows][padded].
struct GroupRows {
  int64_t first, kv_head, rows;
};
inline void load_rows(const HeadView& from, const GroupRows& at, const Shape& shape, float* to) {
  for (int64_t r = 0; r < at.rows; ++r) {
    const float* row =
        from.at(at.first + r / shape.group, at.kv_head * shape.group + r % shape.group);
    std::copy(row, row + shape.depth, to + r * shape.padded);
    std::fill(to + r * shape.padded + shape.depth, to + (r + 1) * shape.padded, 0.0F);
  }
}

inline constexpr int64_t kPair = 2;  // blocks that a single query takes at once

// Memory of one thread.
struct Scratch {
  std::vector<float> rows, keys_t, values, scores, out, maximum, sum;
  std::vector<int64_t> positions;
  explicit Scratch(const Shape& shape)
      : rows(kTileRows * shape.padded),
        keys_t(kPair * kKeys * shape.padded),
        values(kPair * kKeys * shape.padded),
        scores(kPair * kTileRows * kKeys),
        out(kTileRows * shape.padded),
        maximum(kTileRows),
        sum(kTileRows),
        positions(kTileRows) {}
};

// The pages of a layer as flat memory of type T.
template <typename T>
struct PageView {
  const T *keys, *values;
  int64_t stride, head_stride;  // numbers between pages, and between heads of a page
  PageView(const KvLayer& layer, const Shape& shape)
      : keys(layer.keys.const_data_ptr<T>()),
        values(layer.values.const_data_ptr<T>()),
        stride(shape.kv_heads * shape.depth * kKeys),
        head_stride(shape.depth * kKeys) {}
};

// One block of keys (transposed) and values in f32, in its page where that has the form already.
struct Block {
  const float* keys_t;
  tiles::Values values;
};

template <typename T>
void widen_row(const T* from, float* to, int64_t count) {
  if constexpr (std::is_same_v<T, at::BFloat16>) {
    tiles::widen(from, to, count);
  } else {
    std::copy_n(from, count, to);
  }
}

// `place`: which of a pair's places of the scratch the block may take.
template <typename T>
Block load_block(const T* keys, const T* values, int64_t present, int64_t place, const Shape& shape,
                 Scratch& scratch) {
  if constexpr (std::is_same_v<T, float>)
    if (shape.depth == shape.padded) return {keys, {values, shape.depth, present}};
  float* const keys_t = &scratch.keys_t[place * kKeys * shape.padded];
  float* const rows = &scratch.values[place * kKeys * shape.padded];
  widen_row(keys, keys_t, shape.depth * kKeys);
  for (int64_t j = 0; j < present; ++j)
    widen_row(values + j * shape.depth, rows + j * shape.padded, shape.depth);
  return {keys_t, {rows, shape.padded, present}};
}

// One unit of forward work: some queries of one sequence under one key/value head.
struct WorkItem {
  int64_t sequence, kv_head, first, count;  // queries first .. first + count - 1 of the sequence
};

// Heads of a sequence follow each other, as in its pages, and so do sequences that share pages.
inline std::vector<WorkItem> forward_items(const AttentionBatch& batch, const Shape& shape) {
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

inline int64_t first_block(const WorkItem& item, const AttentionBatch& batch) {
  const int64_t start = batch.cached[item.sequence] + item.first;
  return batch.window > 0 ? std::max<int64_t>(0, start - batch.window + 1) / kKeys : 0;
}

// Blocks up to the one of the item's last query.
inline int64_t end_block(const WorkItem& item, const AttentionBatch& batch) {
  return (batch.cached[item.sequence] + item.first + item.count + kKeys - 1) / kKeys;
}

// Where a thread's blocks lie: those of an item and, past its end, of the next one.
template <typename T>
struct BlockWalk {
  const PageView<T>& pages;
  const AttentionBatch& batch;
  const WorkItem& item;
  const WorkItem* next;  // null: none

  // Offset of a block in the keys and in the values; -1: there is none.
  int64_t at(int64_t block) const {
    const WorkItem* of = &item;
    if (block >= end_block(item, batch)) {
      if (next == nullptr) return -1;
      block += first_block(*next, batch) - end_block(item, batch);
      of = next;
      if (block >= end_block(*of, batch)) return -1;
    }
    return batch.page_tables[of->sequence][block] * pages.stride + of->kv_head * pages.head_stride;
  }
  tiles::Ahead ahead(const T* data, int64_t block, int64_t row_numbers) const {
    const int64_t offset = at(block);
    if (offset < 0) return {};
    return {reinterpret_cast<const char*>(data + offset),
            row_numbers * static_cast<int64_t>(sizeof(T))};
  }
};

// One step of the online softmax with the scores of one block.
inline void take_block(const WorkItem& item, const Block& block, int64_t first_key, float* scores,
                       const AttentionBatch& batch, const Shape& shape, Scratch& scratch) {
  const int64_t rows = item.count * shape.group;
  const int64_t start = batch.cached[item.sequence] + item.first;
  tiles::scale_and_mask(scores, {scratch.positions.data(), start, first_key, batch.window}, rows,
                        shape.scores);
  tiles::softmax_step(scores, scratch.maximum.data(), scratch.sum.data(), scratch.out.data(), rows,
                      shape.padded);
  tiles::accumulate(scores, block.values, scratch.out.data(), rows, shape.padded);
}

// Up to kPair blocks from `first` on against a single query.
template <typename T>
void attend_pair(const BlockWalk<T>& walk, int64_t first, const Shape& shape, Scratch& scratch) {
  const WorkItem& item = walk.item;
  const int64_t end = walk.batch.cached[item.sequence] + item.first + 1;
  const int64_t count = std::min(kPair, end_block(item, walk.batch) - first);
  Block blocks[kPair];
  tiles::BlockPair pair;
  for (int64_t i = 0; i < kPair; ++i) {
    const int64_t block = first + std::min(i, count - 1), later = first + i + kPair;
    const int64_t offset = walk.at(block), present = std::min(kKeys, end - block * kKeys);
    blocks[i] = load_block(walk.pages.keys + offset, walk.pages.values + offset, present, i, shape,
                           scratch);
    blocks[i].values.ahead = walk.ahead(walk.pages.values, later, shape.depth);
    pair.keys_t[i] = blocks[i].keys_t;
    pair.ahead[i] = walk.ahead(walk.pages.keys, later, kKeys);
  }
  tiles::dot_pair(scratch.rows.data(), shape.padded, pair, scratch.scores.data(), shape.group,
                  shape.depth);
  for (int64_t i = 0; i < count; ++i)
    take_block(item, blocks[i], (first + i) * kKeys, &scratch.scores[i * shape.group * kKeys],
               walk.batch, shape, scratch);
}

// The queries of an item against all keys that they see: weighted sums of values in scratch.out,
// largest scores and sums of weights beside them.
template <typename T>
void attend(const BlockWalk<T>& walk, const Shape& shape, Scratch& scratch) {
  const WorkItem& item = walk.item;
  const int64_t rows = item.count * shape.group;
  const int64_t start = walk.batch.cached[item.sequence] + item.first, end = start + item.count;
  for (int64_t r = 0; r < rows; ++r) scratch.positions[r] = start + r / shape.group;
  std::fill_n(scratch.out.begin(), rows * shape.padded, 0.0F);
  std::fill_n(scratch.maximum.begin(), rows, -std::numeric_limits<float>::infinity());
  std::fill_n(scratch.sum.begin(), rows, 0.0F);
  const int64_t first = first_block(item, walk.batch), last = end_block(item, walk.batch);
  if (item.count == 1) {
    for (int64_t block = first; block < last; block += kPair)
      attend_pair(walk, block, shape, scratch);
    return;
  }
  for (int64_t block = first; block < last; ++block) {
    const int64_t offset = walk.at(block), present = std::min(kKeys, end - block * kKeys);
    const Block loaded = load_block(walk.pages.keys + offset, walk.pages.values + offset, present,
                                    0, shape, scratch);
    tiles::dot(scratch.rows.data(), shape.padded, loaded.keys_t, scratch.scores.data(), rows,
               shape.depth);
    take_block(item, loaded, block * kKeys, scratch.scores.data(), walk.batch, shape, scratch);
  }
}

// The same for the rows that load_rows() gave to the scratch; results go to `out`, and the
// logarithms of the sums of exponentials to `lse` unless null.
template <typename T>
void attend_and_store(const BlockWalk<T>& walk, const HeadView& out, float* lse, const Shape& shape,
                      Scratch& scratch) {
  const WorkItem& item = walk.item;
  attend(walk, shape, scratch);
  const int64_t base = walk.batch.query_begin[item.sequence] + item.first;
  for (int64_t r = 0; r < item.count * shape.group; ++r) {
    const int64_t token = base + r / shape.group,
                  head = item.kv_head * shape.group + r % shape.group;
    float* to = out.at(token, head);
    const float inverse = 1.0F / scratch.sum[r];
    for (int64_t d = 0; d < shape.depth; ++d) to[d] = scratch.out[r * shape.padded + d] * inverse;
    if (lse != nullptr)
      lse[token * shape.heads + head] = scratch.maximum[r] + std::log(scratch.sum[r]);
  }
}

}  // namespace braid::inline nn::attention_items
