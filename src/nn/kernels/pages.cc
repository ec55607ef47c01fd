// KV pages: keys transposed, so that the scores of a page are sums over rows that lie side by side,
// and values by head, so that a (sequence, head) pair reads memory in one run. Where operators read
// them, both lie token by token behind the same shapes.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "device/device_copy.h"
#include "nn/kernels/any_order.h"
#include "nn/kernels/attention_tiles.h"
#include "nn/kernels/kernels.h"
#include "nn/kernels/padded_batch.h"

namespace braid::inline nn {
namespace {

// One sequence's new tokens of one head: rows begin .. end - 1 of the batch at positions from
// `cached` on.
struct Run {
  int64_t begin, end, cached, head;
  const std::vector<int32_t>* pages;
};

// `count` rows of a page from slot `slot` on become columns; rows are `stride` numbers apart.
template <typename T>
void transpose_into(const T* from, int64_t stride, int64_t count, int64_t depth, T* page,
                    int64_t slot) {
  if constexpr (std::is_same_v<T, float>)
    if (count == kPageTokens && depth % 16 == 0) return tiles::transpose(from, stride, page, depth);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t d = 0; d < depth; ++d) page[d * kPageTokens + slot + i] = from[i * stride + d];
}

template <typename T>
void copy_into(const T* from, int64_t stride, int64_t count, int64_t depth, T* page, int64_t slot) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(page + (slot + i) * depth, from + i * stride, depth * sizeof(T));
}

template <typename T, typename Put>
void store_run(const Run& run, const at::Tensor& from, const at::Tensor& pages, const Put& put) {
  const int64_t heads = from.size(1), depth = from.size(2), block = depth * kPageTokens;
  int64_t position = run.cached;
  for (int64_t row = run.begin; row < run.end;) {
    const int64_t slot = position % kPageTokens;
    const int64_t count = std::min(kPageTokens - slot, run.end - row);
    const int64_t page = (*run.pages)[position / kPageTokens];
    put(from.const_data_ptr<T>() + (row * heads + run.head) * depth, heads * depth, count, depth,
        pages.mutable_data_ptr<T>() + (page * heads + run.head) * block, slot);
    row += count;
    position += count;
  }
}

// A sequence's own rows, and those of its host that do not fill a page.
template <typename Each>
void for_each_run(const AttentionBatch& batch, int64_t heads, const Each& each) {
  const auto sequences = static_cast<int64_t>(batch.page_tables.size());
  at::parallel_for(0, sequences * heads, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t s = i / heads, cached = batch.cached[s], head = i % heads;
      each(
          Run{batch.query_begin[s], batch.query_begin[s + 1], cached, head, &batch.page_tables[s]});
      if (batch.host(s) < 0) continue;
      const int64_t of_host = batch.query_begin[batch.host(s)];
      const int64_t from = cached / kPageTokens * kPageTokens;
      each(Run{of_host + from, of_host + cached, from, head, &batch.page_tables[s]});
    }
  });
}

void store_on_cpu(const at::Tensor& k, const at::Tensor& v, const AttentionBatch& batch,
                  const KvLayer& layer) {
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, layer.keys.scalar_type(), "store_kv", [&] {
    for_each_run(batch, k.size(1), [&](const Run& run) {
      store_run<scalar_t>(run, k, layer.keys, transpose_into<scalar_t>);
      store_run<scalar_t>(run, v, layer.values, copy_into<scalar_t>);
    });
  });
}

// The same on any device, whose pages lie token by token (allocate_kv()).
void store_by_operators(const at::Tensor& k, const at::Tensor& v, const AttentionBatch& batch,
                        const KvLayer& layer) {
  const at::ScalarType type = layer.keys.scalar_type();
  const at::Tensor slots = padded_batch(batch, layer.keys.device(), type).slot_T;
  const AnyOrder any_order;
  layer.keys.permute({0, 3, 1, 2})
      .view({-1, k.size(1), k.size(2)})
      .index_copy_(0, slots, k.to(type));
  layer.values.permute({0, 2, 1, 3})
      .view({-1, v.size(1), v.size(2)})
      .index_copy_(0, slots, v.to(type));
}

}  // namespace

KvLayer allocate_kv(int64_t pages, int64_t kv_heads, int64_t depth,
                    const at::TensorOptions& options) {
  if (options.device().is_cpu())
    return {at::empty({pages, kv_heads, depth, kPageTokens}, options),
            at::empty({pages, kv_heads, kPageTokens, depth}, options)};
  // Operators read whole pages and hide the slots that nobody wrote: these must hold numbers.
  const auto tokens = [&] { return at::zeros({pages, kPageTokens, kv_heads, depth}, options); };
  return {tokens().permute({0, 2, 3, 1}), tokens().permute({0, 2, 1, 3})};
}

void store_kv(const at::Tensor& k_TKD, const at::Tensor& v_TKD, const AttentionBatch& batch,
              const KvLayer& layer) {
  if (!layer.keys.device().is_cpu()) return store_by_operators(k_TKD, v_TKD, batch, layer);
  const at::ScalarType type = layer.keys.scalar_type();
  store_on_cpu(k_TKD.to(type).contiguous(), v_TKD.to(type).contiguous(), batch, layer);
}

KvLayer read_kv(const KvLayer& layer, const std::vector<int32_t>& pages, int64_t tokens) {
  const std::vector<int64_t> table(pages.begin(), pages.end());
  const at::Tensor index = to_device(at::tensor(table, at::kLong), layer.keys.device());
  const at::Tensor keys = at::index_select(layer.keys, 0, index).permute({0, 3, 1, 2});
  const at::Tensor values = at::index_select(layer.values, 0, index).permute({0, 2, 1, 3});
  return {keys.flatten(0, 1).narrow(0, 0, tokens), values.flatten(0, 1).narrow(0, 0, tokens)};
}

int64_t page_count(const AttentionBatch& batch) {
  int64_t count = 0;
  for (const std::vector<int32_t>& table : batch.page_tables)
    for (const int32_t page : table) count = std::max<int64_t>(count, page + 1);
  return count;
}

at::Tensor transposed_pages(const at::Tensor& k_TKD, const AttentionBatch& batch) {
  at::Tensor keys =
      at::empty({page_count(batch), k_TKD.size(1), k_TKD.size(2), kPageTokens}, k_TKD.options());
  for_each_run(batch, k_TKD.size(1),
               [&](const Run& run) { store_run<float>(run, k_TKD, keys, transpose_into<float>); });
  return keys;
}

}  // namespace braid::inline nn
